// Compares virtual time and bytes of strategies with shards on the host with formulas.

#include <algorithm>
#include <functional>
#include <string>

#include "sim/cluster.hpp"
#include "src/cost/virtual_time.hpp"
#include "src/nn/linear.hpp"
#include "src/nn/sequential.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/zero_offload.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kLayers = 6;
constexpr std::int64_t kWidth = 64;
constexpr std::int64_t kRows = 128;
constexpr std::int64_t kLayer = kWidth * kWidth;          // parameters
constexpr std::int64_t kShare = kLayer / kRanks;          // of a layer, on one rank
constexpr BucketSizes kOneLayer{2 * kLayer, 2 * kLayer};  // of bf16
constexpr Picoseconds kMicrosecond = 1'000'000;

/// Layers of equal size, without biases, whose parameters have no memory yet.
std::unique_ptr<Sequential> stack_of(Device& device) {
    auto model = std::make_unique<Sequential>();
    for (int layer = 0; layer < kLayers; ++layer) {
        ParameterInit init{device, DType::bf16, 1, std::to_string(layer)};
        init.allocate = false;
        model->add<Linear>(init, kWidth, kWidth, false);
    }
    return model;
}

/// The times of operations, in whole microseconds. All other operations are free.
struct Times {
    Picoseconds product = 0;  ///< of one layer; forward needs one product, backward two
    Picoseconds line = 0;     ///< a layer's gather, or its reduce-scatter
    Picoseconds copy = 0;     ///< a rank's share of a layer, in either direction
    Picoseconds update = 0;   ///< the host's update of this share

    ClusterSpec spec() const {
        const auto rate = [](double amount, Picoseconds time) {
            return amount / (static_cast<double>(time) * 1e-12);
        };
        ClusterSpec spec;
        spec.devices_per_node = kRanks;
        spec.flops_bf16 = rate(2.0 * kRows * kLayer, product);
        spec.inside = {0, rate(2.0 * kShare * (kRanks - 1), line)};
        spec.host_copy = {0, rate(2.0 * kShare, copy)};
        spec.host.flops_f32 = rate(14.0 * kShare, update);  // AdamW's flops per number
        return spec;
    }
};

Times microseconds(int product, int line, int copy, int update) {
    return {product * kMicrosecond, line * kMicrosecond, copy * kMicrosecond,
            update * kMicrosecond};
}

/// A loss whose gradient costs no time.
LossResult free_loss(Device& device, const Tensor& prediction, const Tensor& /*target*/,
                     double /*weight*/, SourceLine at) {
    return {device.empty({1}, DType::f32, at),
            device.empty(prediction.shape(), prediction.dtype(), at)};
}

using MakeSync = std::function<std::unique_ptr<GradientSync>(Rank&, Sequential&)>;

MakeSync offload(bool delayed, const ZeroOptions& options = {.sizes = kOneLayer}) {
    return [=](Rank& rank, Sequential& model) {
        return std::make_unique<ZeroOffload>(rank.device(), rank.world(),
                                             model.parameters(), options, delayed);
    };
}

MakeSync on_host(const FullyShardedOptions& options = {.on_host = true}) {
    return [=](Rank& rank, Sequential& model) {
        return std::make_unique<FullySharded>(rank.device(), rank.world(), model,
                                              options);
    };
}

RunReport run(const MakeSync& make, const Times& times, int steps) {
    sim::ClusterOptions options;
    options.ranks = kRanks;
    options.workers = 1;
    options.numbers = false;
    options.spec = times.spec();
    return sim::make_cluster(options)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto model = stack_of(device);
        declare_replicas_of(rank.world(), *model);
        const auto sync = make(rank, *model);
        const auto optimizer = make_optimizer<AdamW>(sync->shards(), AdamWOptions{});
        const Tensor x = device.empty({kRows, kWidth}, DType::bf16);
        const MicroBatch batch{x, x, 1.0 / kRanks};
        for (int step = 0; step < steps; ++step)
            train_step(device, *model, free_loss, {&batch, 1}, *sync, *optimizer);
    });
}

/// Returns how much time a fourth step adds.
Picoseconds step_time(const MakeSync& make, const Times& times) {
    return run(make, times, 4).makespan() - run(make, times, 3).makespan();
}

}  // namespace

TEST_CASE("A host's update runs between two steps", "[parallel][zero][costs]") {
    // Backward hides the sums and copies of gradients, except the last sum, which
    // overlaps with a copy, and the last copy. Then the host updates each bucket while
    // the bucket before it is copied back. The last bucket is gathered after that.
    for (const int host : {3, 8}) {
        const Times t = microseconds(10, 3, 4, host);
        const Picoseconds between = std::max(t.line, t.copy) + t.copy + t.update +
                                    (kLayers - 1) * std::max(t.update, t.copy) + t.copy +
                                    t.line;
        CHECK(step_time(offload(false), t) == kLayers * 3 * t.product + between);
    }
    // If the link is the limit, it is busy once the backward of the last two layers has
    // ended: the first gradients are then summed. It is idle only in the first update.
    const Times slow = microseconds(10, 6, 50, 8);
    CHECK(step_time(offload(false), slow) == kLayers * slow.product + 4 * slow.product +
                                                 kLayers * slow.copy + slow.update +
                                                 kLayers * slow.copy + slow.line);
}

TEST_CASE("A delayed update is hidden if it is shorter than a step",
          "[parallel][zero][costs]") {
    // The host begins when all values are on the device. Values may be overwritten after
    // a gather and a step. Each bucket is gathered while the next is copied.
    for (const int link : {4, 50}) {
        for (const int host : {3, 8, 30, 31, 100}) {
            CAPTURE(link, host);
            const Times t = microseconds(10, 3, link, host);
            const Picoseconds device = t.line + kLayers * 3 * t.product + t.line;
            CHECK(step_time(offload(true), t) ==
                  std::max(device + kLayers * t.copy, kLayers * t.update + t.copy));
            if (host <= 31) CHECK(kLayers * t.update <= device);
        }
    }
}

TEST_CASE("Shards on the host are copied to the device during computation",
          "[parallel][zero][costs]") {
    // Forward waits for the copies of two layers. The first layer is gathered during the
    // second copy. Backward waits for one copy. Then the last gradients are reduced and
    // copied to the host, which updates all of them.
    for (const int host : {3, 8}) {
        const Times t = microseconds(10, 3, 4, host);
        CHECK(step_time(on_host(), t) == 2 * t.copy + kLayers * 3 * t.product + t.copy +
                                             std::max(t.line, t.copy) + t.copy +
                                             kLayers * t.update);
    }
    // If the link is the limit, all copies to the device follow one another. Only the
    // last layer's forward and backward are between these copies, since its values are
    // kept. The second layer's backward and the last three copies to the host follow.
    const Times slow = microseconds(10, 6, 50, 8);
    CHECK(step_time(on_host(), slow) == (2 * kLayers - 1) * slow.copy + 2 * slow.product +
                                            2 * slow.product + 3 * slow.copy +
                                            kLayers * slow.update);
}

TEST_CASE("Only each rank's share is copied to the host and back, in its type",
          "[parallel][zero][costs]") {
    constexpr std::int64_t kBytes = 2 * kLayers * kShare;  // 2 psi / n, in bf16
    const Times t = microseconds(10, 3, 4, 3);
    const auto check = [&](const MakeSync& make, std::int64_t to_host,
                           std::int64_t to_device) {
        const RunReport three = run(make, t, 3), four = run(make, t, 4);
        for (std::size_t rank = 0; rank < kRanks; ++rank) {
            const HostReport &less = three.ranks[rank].host,
                             &more = four.ranks[rank].host;
            CHECK(more.bytes_to_host - less.bytes_to_host == to_host);
            CHECK(more.bytes_to_device - less.bytes_to_device == to_device);
        }
    };
    for (const bool delayed : {false, true}) {
        check(offload(delayed), kBytes, kBytes);
        check(offload(delayed, {.sizes = kOneLayer, .reduce_in = DType::f32}), 2 * kBytes,
              kBytes);
    }
    // Values are copied for forward and for backward; the last layer's only once.
    check(on_host(), kBytes, 2 * kBytes - kBytes / kLayers);
    check(on_host({.reshard_after_forward = false, .on_host = true}), kBytes, kBytes);
}

}  // namespace lockstep::test
