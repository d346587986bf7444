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
    /// Each rank gets the sums of all gradients, not of its share alone: half as many
    /// bytes again a step, for nothing. For comparison; stage 1 only, and not in another
    /// type.
    bool all_reduce = false;
    /// New values are on their way while the next step begins: a bucket's are waited for
    /// when a module first reads one of them. Who reads values otherwise calls
    /// wait_for_values() before.
    bool hide_gather = false;
    /// The type in which gradients are added up, and in which shards have them; their own
    /// by default. For gradients in bf16 of many ranks, f32: then shards have 4 bytes of
    /// it, and a bucket is cast at a time.
    std::optional<DType> reduce_in{};
};

/// ZeRO stage 1: each of n replicas keeps the optimizer's state of a shard alone, 1/n of
/// the parameters, and updates that; the others get its new values (Rajbhandari et al.
/// 2019, 1910.02054, section 5.1). PlainZero1 (plain_zero_1.hpp) shows only the idea.
///
///     Zero1 sync(device, replicas, model.parameters());
///     AdamW optimizer(sync.shards());
///     train_step(device, model, loss, micro_batches, sync, optimizer);
///
/// A reduce-scatter of gradients, bucket by bucket while backward goes on, and an
/// all-gather of values, bucket by bucket while the optimizer goes on: 2(n-1)/n of their
/// bytes, as much as data parallelism's all-reduce. With bf16 values and gradients, f32
/// masters and AdamW a device holds 4 + 12/n bytes a parameter.
///
/// Values and gradients become views of the buckets; they are made if they are absent.
/// Each rank has an equal range of a bucket, which is padded to a multiple of n elements:
/// whole parameters, and at its ends parts. So only an optimizer that works element by
/// element can be shared out so. Parameters that other ranks hold alike, along other
/// lines, have buckets of their own: those ranks then share them out, and add them up,
/// in the same way. Otherwise the copies of a tied table would drift apart by rounding.
/// (Megatron-LM keeps tied embeddings in a bucket of their own for that.) So where
/// parameters lie is said before.
class Zero1 : public GradientBuckets {
  public:
    /// Throws UsageError if the parameters are not known to be partial along `replicas`,
    /// or are too few to give each rank one element, or for options that exclude each
    /// other.
    Zero1(Device& device, Communicator& replicas, std::vector<Parameter*> parameters,
          ZeroOptions options = {});

    /// After finish() their gradients are the batch's.
    std::vector<Parameter*> shards() const override;

    void begin() override;
    void finish() override;
    /// Throws UsageError if the optimizer has other parameters than the shards.
    void update(Optimizer& optimizer) override;
    void send_values() override { renew(nullptr); }
    void wait_for_values() override;

  protected:
    /// What stages differ in.
    struct Stage {
        const char* name;
        BucketsGo go = BucketsGo::each_step;
        bool keeps_gradients = true;  ///< whole, between steps
        Device* home = nullptr;       ///< of the shards; null: the device
    };
    Zero1(const Stage& stage, Device& device, Communicator& replicas,
          std::vector<Parameter*> parameters, const ZeroOptions& options);

    /// A bucket that ranks share out.
    struct Shared {
        Tensor values;         ///< whole, padded
        Tensor gradients;      ///< whole, padded; none if they are not there now
        Tensor own_values;     ///< this rank's range, a view or on the host
        Tensor own_gradients;  ///< the same
        std::vector<std::unique_ptr<Parameter>> shards{};
        ScatteredSum sum{};
        std::optional<Work> gather{};
    };
    std::vector<Shared>& shared() { return shared_; }
    SumsInTurn& in_turn() { return in_turn_; }
    Device& device() const { return device_; }
    Communicator& replicas() const { return replicas_; }
    const ZeroOptions& options() const { return options_; }

    /// All sums are there, on the device.
    void finish_sums();
    /// Says that the shards' gradients are the batch's.
    void complete_shards();
    void require_own(const Optimizer& optimizer) const;
    /// Sends this rank's new values of a bucket to the others.
    void gather(Shared& bucket);
    void before_use(Parameter& parameter, Use use) override;
    /// Updates the shards, if there is an optimizer, and sends their values to all.
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
    std::size_t places_ = 0;  ///< of all parameters, when it was made
};

/// ZeRO stage 1 of a model whose parameters have replicas on different ranks. Each is
/// shared out by the ranks along those axes that hold it alike: by all of them, or by
/// the longest line that does. What nobody holds alike stays with its rank.
///
///     declare_replicas_of(mesh, {"dp", "ep"}, *gpt);
///     const auto sync = zero_1_by_places(device, mesh, {"dp", "ep"}, gpt->parameters());
///     AdamW optimizer(sync->shards());
///
/// has the ranks of "dp" and "ep" share out the state of attention, and those of "dp"
/// that of experts, which the ranks of "ep" do not hold alike. Throws UsageError as Zero1
/// does.
std::unique_ptr<CombinedSync> zero_1_by_places(Device& device, Mesh& mesh,
                                               const std::vector<std::string>& axes,
                                               std::vector<Parameter*> parameters,
                                               const ZeroOptions& options = {},
                                               SourceLine at = SourceLine::here());

}  // namespace lockstep
