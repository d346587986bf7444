#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/nn/optimizer.hpp"
#include "src/parallel/gradient_accumulation.hpp"

namespace lockstep {

/// A strategy of data parallelism, as a training step sees it. It decides how gradients
/// become whole of which ranks have terms, and who updates what.
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
    /// This rank updates these, and norms, records and checkpoints are made of them: all
    /// parameters, or if ranks share them out, this rank's shards.
    virtual std::vector<Parameter*> shards() const { return parameters_; }

    /// A step begins; gradients are set to zero next.
    virtual void begin() {}
    /// The step's last backward is done. Waits until gradients are those of the batch, or
    /// this rank's shard of them is.
    virtual void finish() = 0;
    /// One step of the optimizer, and what has to follow it on other ranks.
    virtual void update(Optimizer& optimizer);
    /// New values that other ranks have made may still be on their way after update();
    /// modules wait for them. Who reads values otherwise calls this before.
    virtual void wait_for_values() {}

    /// The shards have got other values, from a checkpoint: brings them to the model, as
    /// after an update.
    virtual void send_values() {}
    /// Returns what it hands from step to step that no checkpoint has; null if there is
    /// nothing.
    virtual const char* unsaved() const { return nullptr; }

  protected:
    /// Throws UsageError, which begins with `who`, unless the optimizer is of the shards
    /// alone. If the strategy is one of several, they see to that together.
    void require_shards_of(const char* who, const Optimizer& optimizer) const;

  private:
    friend class CombinedSync;
    /// The gradient has its last contribution of a backward pass.
    virtual void passed(Parameter& /*parameter*/) {}
    /// The gradient has its last contribution of the step, of all micro-batches: its
    /// reduction can begin, while backward goes on.
    virtual void ready(Parameter& /*parameter*/) {}
    /// A module is about to use the parameter, or has done so.
    virtual void before_use(Parameter& /*parameter*/, Use /*use*/) {}
    virtual void after_use(Parameter& /*parameter*/, Use /*use*/) {}

    std::vector<Parameter*> parameters_;
    std::vector<std::pair<Parameter*, Parameter::HookId>> hooks_;
    bool shares_optimizer_ = false;
};

/// The simplest: once backward is done, one all-reduce a parameter along each axis where
/// its gradient is partial. It is as good as what is said of the parameters: replicas are
/// declared first (declare_replicas_of), else nothing is reduced.
class AllReduceSync : public GradientSync {
  public:
    using GradientSync::GradientSync;
    void finish() override;
};

/// Several strategies at once, each for parameters of its own, and one optimizer for all
/// of them, as for experts, which lie on other ranks than the layers around them: see
/// zero_1_by_places().
class CombinedSync : public GradientSync {
  public:
    CombinedSync() : GradientSync({}) {}
    /// Throws UsageError for none, and for one that has a parameter of another.
    void add(std::unique_ptr<GradientSync> sync);

    std::vector<Parameter*> shards() const override;
    void begin() override;
    void finish() override;
    /// Throws UsageError if the optimizer has other parameters than the shards.
    void update(Optimizer& optimizer) override;
    void wait_for_values() override;
    void send_values() override;
    const char* unsaved() const override;

  private:
    std::vector<std::unique_ptr<GradientSync>> syncs_;
};

/// One step of training: micro-batches whose weights, over all ranks, make the mean that
/// is wanted, then one update. Gives the loss of this rank's micro-batches, (1): the sum
/// over ranks with micro-batches of their own is the batch's. Leaves gradients as the
/// strategy leaves them.
Tensor train_step(Device& device, Module& model, const Loss& loss,
                  std::span<const MicroBatch> micro_batches, GradientSync& sync,
                  Optimizer& optimizer, SourceLine at = SourceLine::here());

}  // namespace lockstep
