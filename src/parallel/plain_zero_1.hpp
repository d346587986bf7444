#pragma once

#include <memory>
#include <vector>

#include "src/parallel/train_step.hpp"

namespace lockstep {

/// ZeRO stage 1 in its plainest form (Rajbhandari et al. 2019, 1910.02054, section 5.1).
/// Zero1 (zero_1.hpp) gives the same values, but sends messages while backward and the
/// optimizer run, and has options.
///
///     PlainZero1 sync(device, replicas, model.parameters());
///     AdamW optimizer(sync.shards());
///     train_step(device, model, loss, micro_batches, sync, optimizer);
///
/// All values lie in one buffer, all gradients in another. Each of n replicas owns an
/// equal range of both, and keeps the optimizer's state for that range only. After
/// backward a reduce-scatter gives each replica the sums of its range. Each replica
/// updates the values of its range, and an all-gather sends them to all replicas. A step
/// sends 2(n-1)/n of the parameters' bytes.
class PlainZero1 : public GradientSync {
  public:
    /// Throws UsageError if the parameters have several dtypes, are not known to be
    /// partial along `replicas`, are placed differently along other lines, or have too
    /// few elements to give each rank one element.
    PlainZero1(Device& device, Communicator& replicas,
               std::vector<Parameter*> parameters);

    std::vector<Parameter*> shards() const override;
    void begin() override;
    void finish() override;
    void update(Optimizer& optimizer) override;
    void send_values() override;

  private:
    Communicator& replicas_;
    Tensor values_;     ///< of all parameters, padded to a multiple of n
    Tensor gradients_;  ///< of all parameters, padded like values_
    std::vector<std::unique_ptr<Parameter>> shards_;  ///< parts in this rank's range
};

}  // namespace lockstep
