#pragma once

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

/// A worker of a synchronous parameter server. It sends its gradients to rank `server` of
/// the group. The server sums the gradients of all workers, updates its values, and sends
/// them back (Li et al. 2014, OSDI, section 3). Per step a worker sends S bytes of
/// gradients and receives S bytes of values. With n workers the server receives and sends
/// n S bytes, so its link is the bottleneck.
///
/// The worker's gradients do not get the other workers' terms. update() does not use its
/// optimizer: the server's optimizer updates the values.
class ServedWorker : public GradientSync {
  public:
    ServedWorker(Device& device, Communicator& group, std::vector<Parameter*> parameters,
                 int server = 0);

    void finish() override;
    void update(Optimizer& optimizer) override;
    const char* unsaved() const override { return "the state that its server has"; }

  private:
    Communicator& group_;
    int server_;
    Tensor values_;
    Tensor gradients_;
};

/// Runs the server's side for `steps` steps. Call it on the server's rank; all other
/// ranks are workers with the same number of steps. `parameters` are the model's, with
/// the initial values, and become views of one buffer. Throws UsageError if the optimizer
/// has other parameters than `parameters`.
void serve_parameters(Device& device, Communicator& group,
                      const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                      int steps);

}  // namespace lockstep
