#pragma once

#include "src/comm/communicator.hpp"
#include "src/parallel/train_step.hpp"

namespace lockstep {

/// ZeRO stage 1: each of n replicas keeps the optimizer's state of a shard alone, 1/n of
/// the parameters, and updates that; the others get its new values (Rajbhandari et al.
/// 2019, 1910.02054, section 5).
///
///     Zero1 sync(device, replicas, model.parameters());
///     AdamW optimizer({&sync.shard()});
///     train_step(device, model, loss, micro_batches, sync, optimizer);
///
/// A reduce-scatter of all gradients and an all-gather of all values: 2(n-1)/n of their
/// bytes, as much as data parallelism's all-reduce. Values and gradients become views of
/// one buffer each, the shard is a range of them. Only an optimizer that works element by
/// element can be shared out so.
class Zero1 : public GradientSync {
  public:
    Zero1(Device& device, Communicator& replicas, std::vector<Parameter*> parameters);

    /// This rank's range of all parameters, padded at the end.
    Parameter& shard() { return shard_; }
    void finish() override;
    void update(Optimizer& optimizer) override;

  private:
    Tensor own(const Tensor& flat) const;

    Communicator& replicas_;
    Tensor values_;
    Tensor gradients_;
    Parameter shard_;
};

}  // namespace lockstep
