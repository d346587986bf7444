#pragma once

#include <span>
#include <utility>
#include <vector>

#include "src/nn/optimizer.hpp"
#include "src/parallel/gradient_accumulation.hpp"

namespace lockstep {

/// What a strategy of data parallelism is, seen from a training step: how the gradients
/// that ranks have terms of become whole, and who updates what.
///
/// In each step a training loop or a pipeline calls begin(), then backward, which tells
/// the strategy of each gradient as soon as it is done, then finish() and update().
/// Parameters must stay as long as the strategy. A gradient that is whole on this rank
/// after finish() is marked so (Parameter::complete).
class GradientSync {
  public:
    explicit GradientSync(std::vector<Parameter*> parameters);
    virtual ~GradientSync();
    GradientSync(const GradientSync&) = delete;
    GradientSync& operator=(const GradientSync&) = delete;

    const std::vector<Parameter*>& parameters() const { return parameters_; }

    /// A step begins; gradients are zeros.
    virtual void begin() {}
    /// The step's last backward is done. Waits until gradients are those of the batch, or
    /// this rank's shard of them is.
    virtual void finish() = 0;
    /// One step of the optimizer, and what has to follow it on other ranks.
    virtual void update(Optimizer& optimizer) { optimizer.step(); }

  private:
    /// The gradient has its last contribution of the step, of all micro-batches: its
    /// reduction can begin, while backward goes on.
    virtual void ready(Parameter& /*parameter*/) {}

    std::vector<Parameter*> parameters_;
    std::vector<Parameter::HookId> hooks_;
};

/// The simplest: once backward is done, one all-reduce a parameter along each axis where
/// its gradient is partial. On one device there are none.
class AllReduceSync : public GradientSync {
  public:
    using GradientSync::GradientSync;
    void finish() override;
};

/// One step of training: micro-batches whose weights, over all ranks, make the mean that
/// is wanted, then one update. Gives this rank's share of the loss, (1); leaves gradients
/// as the strategy leaves them.
Tensor train_step(Device& device, Module& model, const Loss& loss,
                  std::span<const MicroBatch> micro_batches, GradientSync& sync,
                  Optimizer& optimizer);

}  // namespace lockstep
