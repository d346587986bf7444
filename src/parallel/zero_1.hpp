#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "src/comm/mesh.hpp"
#include "src/parallel/gradient_buckets.hpp"
#include "src/parallel/scattered_sum.hpp"

namespace lockstep {

struct ZeroOptions {
    BucketSizes sizes{};
    /// Gives each rank the sums of all gradients, not only of its share. This sends 50 %
    /// more bytes a step, and serves only for comparison. Not allowed in other stages or
    /// with another reduce_in.
    bool all_reduce = false;
    /// New values are gathered while the next step begins: a module waits for a bucket's
    /// values when it first reads one of them. Any other reader of values must call
    /// wait_for_values() first.
    bool hide_gather = false;
    /// The type in which gradients are summed and kept in shards; by default the
    /// gradients' own type. Use f32 for bf16 gradients of many ranks: then shards have 4
    /// bytes per gradient, and one bucket is cast at a time.
    std::optional<DType> reduce_in{};
};

/// ZeRO stage 1: each of n replicas keeps the optimizer's state of only one shard (1/n of
/// the parameters). The replica updates that shard, and the other replicas get the new
/// values (Rajbhandari et al. 2019, 1910.02054, section 5.1). PlainZero1
/// (plain_zero_1.hpp) shows only the idea.
///
///     Zero1 sync(device, replicas, model.parameters());
///     AdamW optimizer(sync.shards());
///     train_step(device, model, loss, micro_batches, sync, optimizer);
///
/// A reduce-scatter sends gradients bucket by bucket while backward runs. An all-gather
/// sends values bucket by bucket while the optimizer runs. Together they send 2(n-1)/n of
/// the parameters' bytes, the same as data parallelism's all-reduce. With bf16 values and
/// gradients, f32 masters and AdamW a device holds 4 + 12/n bytes per parameter.
///
/// Values and gradients become views of the buckets; absent tensors are made. A bucket is
/// padded to a multiple of n elements, and each rank has an equal range of it. A range
/// has whole parameters, and parts of parameters at its ends, so the optimizer must work
/// element by element. Parameters with copies along other lines have their own buckets:
/// the ranks that hold the copies then shard and sum them in the same way. Otherwise the
/// copies of a tied table would drift apart by rounding. (Megatron-LM keeps tied
/// embeddings in their own bucket for this.) Because of these buckets, declare all
/// placements before you make Zero1.
class Zero1 : public GradientBuckets {
  public:
    /// Throws UsageError if the parameters are not known to be partial along `replicas`,
    /// if they have too few elements to give each rank one element, or if options exclude
    /// each other.
    Zero1(Device& device, Communicator& replicas, std::vector<Parameter*> parameters,
          ZeroOptions options = {});

    /// This rank's shards. After finish() their gradients are those of the batch.
    std::vector<Parameter*> shards() const override;

    void begin() override;
    void finish() override;
    /// Throws UsageError if the optimizer has other parameters than the shards.
    void update(Optimizer& optimizer) override;
    void send_values() override { renew(nullptr); }
    void wait_for_values() override;

  protected:
    /// The differences between the stages.
    struct Stage {
        const char* name;
        BucketsGo go = BucketsGo::each_step;
        bool keeps_gradients = true;  ///< keeps whole gradients between steps
        Device* home = nullptr;       ///< where the shards live; null: the device
    };
    Zero1(const Stage& stage, Device& device, Communicator& replicas,
          std::vector<Parameter*> parameters, const ZeroOptions& options);

    /// A bucket that is sharded over the ranks.
    struct Shared {
        Tensor values;         ///< whole, padded
        Tensor gradients;      ///< whole, padded; empty if released
        Tensor own_values;     ///< this rank's range: a view, or on the host
        Tensor own_gradients;  ///< this rank's range, likewise
        std::vector<std::unique_ptr<Parameter>> shards{};
        ScatteredSum sum{};
        std::optional<Work> gather{};
    };
    std::vector<Shared>& shared() { return shared_; }
    SumsInTurn& in_turn() { return in_turn_; }
    Device& device() const { return device_; }
    Communicator& replicas() const { return replicas_; }
    const ZeroOptions& options() const { return options_; }

    /// Starts the remaining buckets, and makes the device wait for all sums.
    void finish_sums();
    /// Marks the shards' gradients as those of the batch.
    void complete_shards();
    void require_own(const Optimizer& optimizer) const;
    /// Sends this rank's new values of a bucket to the other ranks.
    void gather(Shared& bucket);
    void before_use(Parameter& parameter, Use use) override;
    /// Updates the shards, if there is an optimizer, and sends their values to all ranks.
    virtual void renew(Optimizer* optimizer);

  private:
    void start(std::size_t bucket) override;
    Shared share_out(const Bucket& bucket) const;
    void wait_for_values(std::size_t bucket);

    Stage stage_;
    Device& device_;
    Communicator& replicas_;
    ZeroOptions options_;
    std::vector<Shared> shared_;  ///< by bucket
    std::vector<Work> sums_;      ///< if gradients are all-reduced
    SumsInTurn in_turn_;
    std::size_t places_ = 0;  ///< number of all placements at construction
};

/// ZeRO stage 1 for a model whose parameters have replicas on different ranks. A
/// parameter is sharded over ranks along `axes` that hold copies of it: over all these
/// ranks, or over the longest line of copies. A parameter without copies stays on its
/// rank.
///
///     declare_replicas_of(mesh, {"dp", "ep"}, *gpt);
///     const auto sync = zero_1_by_places(device, mesh, {"dp", "ep"}, gpt->parameters());
///     AdamW optimizer(sync->shards());
///
/// This shards the state of attention over the ranks of "dp" and "ep", and the state of
/// experts over the ranks of "dp", because the ranks of "ep" hold different experts.
/// Throws UsageError as Zero1 does.
std::unique_ptr<CombinedSync> zero_1_by_places(Device& device, Mesh& mesh,
                                               const std::vector<std::string>& axes,
                                               std::vector<Parameter*> parameters,
                                               const ZeroOptions& options = {},
                                               SourceLine at = SourceLine::here());

}  // namespace lockstep
