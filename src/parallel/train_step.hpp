#pragma once

#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "src/nn/optimizer.hpp"
#include "src/parallel/gradient_accumulation.hpp"

namespace lockstep {

/// A strategy of data parallelism, as a training step sees it. It decides how gradients
/// are summed over the ranks that have terms of them, and what each rank updates.
///
/// In each step a training loop or a pipeline calls begin(), then backward, then finish()
/// and update(). Backward tells the strategy when each gradient is complete. Parameters
/// must outlive the strategy. finish() marks the gradients that are whole on this rank
/// (Parameter::complete).
class GradientSync {
  public:
    explicit GradientSync(std::vector<Parameter*> parameters);
    virtual ~GradientSync();
    GradientSync(const GradientSync&) = delete;
    GradientSync& operator=(const GradientSync&) = delete;

    const std::vector<Parameter*>& parameters() const { return parameters_; }
    /// The parameters that this rank updates: all of them, or this rank's shards. Norms,
    /// records and checkpoints use these.
    virtual std::vector<Parameter*> shards() const { return parameters_; }

    /// A step begins; gradients are set to zero next.
    virtual void begin() {}
    /// The step's last backward is done. Waits until the gradients, or this rank's shard
    /// of them, are those of the batch.
    virtual void finish() = 0;
    /// Runs one step of the optimizer, and sends new values to other ranks if needed.
    virtual void update(Optimizer& optimizer);
    /// After update() new values from other ranks may still be arriving. Modules wait for
    /// them; any other reader of values must call this first.
    virtual void wait_for_values() {}

    /// The shards have new values, from a checkpoint: sends them to the model, as after
    /// an update.
    virtual void send_values() {}
    /// Names the state that the strategy keeps between steps and that a checkpoint does
    /// not save; null if there is none.
    virtual const char* unsaved() const { return nullptr; }

  protected:
    /// Throws a UsageError that begins with `who` unless the optimizer has exactly the
    /// shards. Does nothing in a strategy of a CombinedSync, which checks this itself.
    void require_shards_of(const char* who, const Optimizer& optimizer) const;

  private:
    friend class CombinedSync;
    /// Called when the gradient has its last contribution of a backward pass.
    virtual void passed(Parameter& /*parameter*/) {}
    /// Called when the gradient has its last contribution of the step, over all
    /// micro-batches: its reduction can start while backward runs.
    virtual void ready(Parameter& /*parameter*/) {}
    /// Called when a module is about to use the parameter, or has used it.
    virtual void before_use(Parameter& /*parameter*/, Use /*use*/) {}
    virtual void after_use(Parameter& /*parameter*/, Use /*use*/) {}

    std::vector<Parameter*> parameters_;
    std::vector<std::pair<Parameter*, Parameter::HookId>> hooks_;
    bool shares_optimizer_ = false;
};

/// The simplest strategy: after backward, one all-reduce per parameter along each axis
/// along which its gradient is partial. Declare replicas first (declare_replicas_of);
/// without declared placements nothing is reduced.
class AllReduceSync : public GradientSync {
  public:
    using GradientSync::GradientSync;
    void finish() override;
};

/// Several strategies together, each for its own parameters, with one optimizer for all
/// of them. Experts need this, because they are on other ranks than the layers around
/// them: see zero_1_by_places().
class CombinedSync : public GradientSync {
  public:
    CombinedSync() : GradientSync({}) {}
    /// Throws UsageError if `sync` is null or has a parameter of another strategy.
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

/// Runs one step of training: all micro-batches, then one update. With their weights, the
/// losses of all ranks' micro-batches must add up to the mean that you want. Returns the
/// loss of this rank's micro-batches, (1). Sum these losses over all ranks with different
/// micro-batches to get the batch's loss. Gradients stay as the strategy leaves them.
Tensor train_step(Device& device, Module& model, const Loss& loss,
                  std::span<const MicroBatch> micro_batches, GradientSync& sync,
                  Optimizer& optimizer, SourceLine at = SourceLine::here());

}  // namespace lockstep
