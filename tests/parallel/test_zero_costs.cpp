// Compares bytes, memory and virtual time of ZeRO's stages with the paper's formulas.

#include <functional>

#include "sim/cluster.hpp"
#include "src/cost/products_and_messages.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/plain_zero_1.hpp"
#include "src/parallel/zero_1.hpp"
#include "src/parallel/zero_2.hpp"
#include "src/parallel/zero_offload.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr int kRanks = 4;
constexpr int kLayers = 5;
constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kRows = 128;
constexpr std::int64_t kLayer = kWidth * kWidth;          // parameters
constexpr std::int64_t kAll = kLayers * kLayer;           // psi
constexpr BucketSizes kOneLayer{2 * kLayer, 2 * kLayer};  // of bf16

/// Layers of equal size, without biases, whose parameters have no memory yet.
std::unique_ptr<Sequential> stack_of(Device& device, DType dtype) {
    auto model = std::make_unique<Sequential>();
    for (int layer = 0; layer < kLayers; ++layer) {
        ParameterInit init{device, dtype, 1, std::to_string(layer)};
        init.allocate = false;
        model->add<Linear>(init, kWidth, kWidth, false);
    }
    return model;
}

using MakeSync = std::function<std::unique_ptr<GradientSync>(Rank&, Sequential&)>;

template <typename Stage>
MakeSync stage(const ZeroOptions& options) {
    return [=](Rank& rank, Sequential& model) {
        return std::make_unique<Stage>(rank.device(), rank.world(), model.parameters(),
                                       options);
    };
}

MakeSync sharded(const FullyShardedOptions& options) {
    return [=](Rank& rank, Sequential& model) {
        return std::make_unique<FullySharded>(rank.device(), rank.world(), model,
                                              options);
    };
}

RunReport step_of(const MakeSync& make, DType dtype, std::int64_t micro_batches,
                  const ClusterSpec& spec = products_and_messages()) {
    sim::ClusterOptions options;
    options.ranks = kRanks;
    options.workers = 1;
    options.numbers = false;
    options.spec = spec;
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = stack_of(device, dtype);
        declare_replicas_of(rank.world(), *model);
        const auto sync = make(rank, *model);
        const auto optimizer = make_optimizer<AdamW>(sync->shards(), AdamWOptions{});
        std::vector<MicroBatch> batches;
        batches.reserve(micro_batches);
        for (std::int64_t i = 0; i < micro_batches; ++i)
            batches.push_back({device.empty({kRows, kWidth}, dtype),
                               device.empty({kRows, kWidth}, dtype),
                               1.0 / static_cast<double>(kRanks * micro_batches)});
        train_step(device, *model, mean_squared_error, batches, *sync, *optimizer);
    });
}

}  // namespace

TEST_CASE("Stages of ZeRO send 2, 2 and 3 times the parameters",
          "[parallel][zero][costs]") {
    const std::int64_t m = GENERATE(1, 3);
    CAPTURE(m);
    constexpr std::int64_t kShare = 2 * kAll / kRanks * (kRanks - 1);  // (n-1)/n, bf16
    constexpr std::int64_t kLast = kShare / kLayers;
    const auto check = [&](const MakeSync& make, std::int64_t reduced,
                           std::int64_t scattered, std::int64_t gathered) {
        for (const RankReport& rank : step_of(make, DType::bf16, m).ranks) {
            CHECK(rank.bytes_sent_by("all_reduce") == reduced);
            CHECK(rank.bytes_sent_by("reduce_scatter") == scattered);
            CHECK(rank.bytes_sent_by("all_gather") == gathered);
            CHECK(rank.bytes_sent() == reduced + scattered + gathered);
        }
    };
    check(stage<Zero1>({.sizes = kOneLayer}), 0, kShare, kShare);
    check(
        [](Rank& rank, Sequential& model) {
            return std::make_unique<PlainZero1>(rank.device(), rank.world(),
                                                model.parameters());
        },
        0, kShare, kShare);
    check(stage<Zero1>({.sizes = kOneLayer, .all_reduce = true}), 2 * kShare, 0, kShare);
    check(stage<Zero2>({.sizes = kOneLayer}), 0, m * kShare, kShare);
    check(stage<Zero2>({.sizes = kOneLayer, .reduce_in = DType::f32}), 0, 2 * m * kShare,
          kShare);
    check(stage<ZeroOffload>({.sizes = kOneLayer}), 0, m * kShare, kShare);
    for (const ShardBy shard_by : {ShardBy::rows, ShardBy::packed_rows, ShardBy::flat}) {
        // The last layer is not gathered again for backward.
        check(sharded({.shard_by = shard_by}), 0, m * kShare, m * (2 * kShare - kLast));
        check(sharded({.shard_by = shard_by, .reshard_after_forward = false}), 0,
              m * kShare, m * kShare);
    }
}

TEST_CASE("Memory of ZeRO's stages is the paper's formula plus what the paper leaves out",
          "[parallel][zero][costs]") {
    const std::int64_t m = GENERATE(1, 3);
    CAPTURE(m);
    constexpr std::int64_t kBucket = 2 * kLayer;
    const auto check = [&](const MakeSync& make, std::int64_t parameters,
                           std::int64_t gradients, std::int64_t optimizer,
                           std::int64_t communication) {
        for (const RankReport& rank : step_of(make, DType::bf16, m).ranks) {
            CHECK(rank.memory.peak_of(MemoryCategory::parameters) == parameters);
            CHECK(rank.memory.peak_of(MemoryCategory::gradients) == gradients);
            CHECK(rank.memory.peak_of(MemoryCategory::optimizer) == optimizer);
            CHECK(rank.memory.peak_of(MemoryCategory::communication) == communication);
        }
    };
    constexpr std::int64_t kState = 12 * kAll / kRanks;
    constexpr std::int64_t kBucketShare = kBucket / kRanks;
    // The first micro-batch's sums arrive in the shards, later sums in a buffer.
    const std::int64_t arriving = m == 1 ? 0 : kBucketShare;
    check(stage<Zero1>({.sizes = kOneLayer}), 2 * kAll, 2 * kAll, kState, 0);
    // There are two buckets: one fills while the other is sent.
    check(stage<Zero2>({.sizes = kOneLayer}), 2 * kAll, 2 * kAll / kRanks + 2 * kBucket,
          kState, arriving);
    // One bucket's share arrives while the share before it is copied to the host.
    check(stage<ZeroOffload>({.sizes = kOneLayer}), 2 * kAll, 2 * kBucket, 0,
          2 * kBucketShare);
    // One bucket at a time is cast; the shards have their own gradients.
    check(stage<Zero1>({.sizes = kOneLayer, .reduce_in = DType::f32}), 2 * kAll,
          2 * kAll + 4 * kAll / kRanks, kState, 2 * kBucket);
    for (const ShardBy shard_by : {ShardBy::rows, ShardBy::flat}) {
        for (const int ahead : {0, 1, 2}) {
            CAPTURE(ahead);
            check(sharded({.shard_by = shard_by, .prefetch = ahead}),
                  2 * kAll / kRanks + (1 + ahead) * kBucket,
                  2 * kAll / kRanks + 2 * kBucket, kState, arriving);
        }
        check(sharded({.shard_by = shard_by, .reshard_after_forward = false}),
              2 * kAll / kRanks + 2 * kAll, 2 * kAll / kRanks + 2 * kBucket, kState,
              arriving);
        // The host has the shards, the masters and the moments. The device holds shares
        // of three layers: the layer that computes next, the layer that is gathered
        // meanwhile, and the layer after that.
        check(sharded({.shard_by = shard_by, .on_host = true}), 2 * kBucket, 2 * kBucket,
              0, 5 * kBucketShare);
    }
}

TEST_CASE("Prefetching hides all gathers but the first", "[parallel][zero][costs]") {
    const ClusterSpec spec = products_and_messages();
    constexpr std::int64_t kBytes = 8 * kLayer / kRanks;  // of a ring step, f64
    const Picoseconds gather = message_time(spec.inside, kBytes) * (kRanks - 1);
    const Picoseconds scatter = gather;
    // Returns how long a device is idle in one step.
    const auto exposed = [](const FullyShardedOptions& options,
                            const ClusterSpec& cluster) {
        const RunReport report = step_of(sharded(options), DType::f64, 1, cluster);
        return report.makespan() - report.ranks[0].time.compute;
    };
    // Without prefetching, no gather is hidden. The last layer's values stay for its
    // backward.
    CHECK(exposed({.prefetch = 0}, spec) ==
          (2 * kLayers - 1) * gather + kLayers * scatter);
    // A forward can hide a gather, and a backward can hide a gather and a scatter.
    ClusterSpec slow = spec;
    slow.flops_f64 /= 1000;
    const Picoseconds forward =
        picoseconds(2.0 * static_cast<double>(kRows * kLayer) / slow.flops_f64);
    REQUIRE(forward > gather + scatter);
    CHECK(exposed({}, slow) == gather + scatter);
    CHECK(exposed({.prefetch = 3}, slow) == gather + scatter);
}

}  // namespace lockstep::test
