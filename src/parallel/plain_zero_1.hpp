#pragma once

#include <memory>
#include <vector>

#include "src/parallel/train_step.hpp"

namespace lockstep {

/// ZeRO stage 1, as plainly as it can be said (Rajbhandari et al. 2019, 1910.02054,
/// section 5.1). Zero1 (zero_1.hpp) gives the same values. It sends while backward and
/// the optimizer go on, and has options.
///
///     PlainZero1 sync(device, replicas, model.parameters());
///     AdamW optimizer(sync.shards());
///     train_step(device, model, loss, micro_batches, sync, optimizer);
///
/// All values lie in one buffer, all gradients in another. Of n replicas each owns an
/// equal range of both, and has the optimizer's state of only that range. After backward
/// a reduce-scatter gives each the sums of its range; it updates its values; an
/// all-gather gives them to all. 2(n-1)/n of the parameters' bytes a step.
class PlainZero1 : public GradientSync {
  public:
    /// Throws UsageError if the parameters are not of one dtype, are not known to be
    /// partial along `replicas`, lie differently along other lines, or are too few for
    /// each rank to have one element.
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
    Tensor gradients_;  ///< the same
    std::vector<std::unique_ptr<Parameter>> shards_;  ///< parts in this rank's range
};

}  // namespace lockstep
