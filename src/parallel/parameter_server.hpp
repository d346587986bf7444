#pragma once

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

/// A worker of a synchronous parameter server: it sends its gradients to rank `server` of
/// the group, which adds up those of all workers and steps, and gets the new values (Li
/// et al. 2014, OSDI, section 3). Sends S bytes of gradients and receives S of values a
/// step; the server receives and sends n S for n workers, which is its price.
///
/// Gradients stay the worker's own. The optimizer that update() is given is not used: the
/// server has the one that counts.
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

/// The server's side of that many steps, on the rank that is it; all others are workers
/// with as many. `parameters` are the model's, with the values to begin with, and become
/// views of one buffer. Throws UsageError if the optimizer has other ones.
void serve_parameters(Device& device, Communicator& group,
                      const std::vector<Parameter*>& parameters, Optimizer& optimizer,
                      int steps);

}  // namespace lockstep
