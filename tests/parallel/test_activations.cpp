// Activations that are recomputed, or kept on the host, inside other strategies: the bits
// stay the same, and the costs equal the formulas.

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "src/nn/offloaded_activations.hpp"
#include "src/nn/recompute.hpp"
#include "src/parallel/context_parallel.hpp"
#include "src/parallel/fully_sharded.hpp"
#include "src/parallel/placement.hpp"
#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/zero_offload.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/data_parallel_task.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

constexpr OffloadOptions kAllOfIt{.least_bytes = 0};

/// A way to shard the model's state.
struct Way {
    std::string name;
    bool on_host = false;  ///< whether the shards are on the host
};

/// Trains the GPT of two layers on three ranks. Applies the strategies in this order.
Outcome trained(const std::vector<std::string>& order, const Way& way) {
    const RowTask task = gpt_task();
    const auto cluster = classroom(3, /*numbers=*/true, sim::CheckLevel::full);
    return outcome_of(*cluster, [&](Rank& rank) {
        Device& device = rank.device();
        const auto made = task.make_model({device, DType::f64, 1, ""});
        auto& model = dynamic_cast<Sequential&>(*made);
        declare_replicas_of(rank.world(), model);
        std::unique_ptr<GradientSync> sync;
        std::vector<Parameter*> shards;
        const auto share = [&](auto made_sync) {
            shards = made_sync->shards();
            sync = std::move(made_sync);
        };
        std::unique_ptr<OffloadedActivations> offloaded;
        for (const std::string& strategy : order) {
            if (strategy == "full")
                recompute_modules(model, 0, model.size());
            else if (strategy == "offloaded")
                offloaded = std::make_unique<OffloadedActivations>(
                    device, model, 0, model.size(), kAllOfIt);
            else if (way.name == "fully sharded")
                share(std::make_unique<FullySharded>(
                    device, rank.world(), model,
                    FullyShardedOptions{.on_host = way.on_host}));
            else
                share(std::make_unique<ZeroOffload>(device, rank.world(),
                                                    model.parameters(),
                                                    ZeroOptions{.sizes = {400, 400}}));
        }
        const auto optimizer = adamw(shards);
        for (int step = 0; step < 2; ++step)
            train_step(device, model, task.loss,
                       batches_of_worker(device, task, step, rank.index(), 3, 2), *sync,
                       *optimizer);
        keep_updated(rank, shards);
    });
}

}  // namespace

TEST_CASE("Shards are gathered around modules with recomputed or offloaded activations",
          "[parallel][zero][activations]") {
    const std::vector<std::vector<std::string>> nests = {
        {"full", "zero"},
        {"offloaded", "zero"},
        {"zero", "offloaded"},
        {"full", "offloaded", "zero"},
        {"full", "zero", "offloaded"},
    };
    for (const Way& way :
         {Way{"fully sharded"}, Way{"fully sharded", true}, Way{"ZeRO-Offload", true}}) {
        const Outcome kept = trained({"zero"}, way);
        REQUIRE(!kept.results.empty());
        for (const auto& order : nests) {
            CAPTURE(way.name, way.on_host, order);
            CHECK(trained(order, way).results == kept.results);
        }
    }
}

namespace {

constexpr std::int64_t kLength = 24, kBatch = 2, kHidden = 48, kHeads = 24, kBlocks = 3;
const GptSizes kSizes{/*vocabulary=*/11, kLength, kBlocks, {kHidden, kHeads}};

using MakeKit = std::function<GptKit(Rank&, TensorParallel&)>;
using Hold = std::function<void(Sequential&)>;

/// One pass of 16-bit blocks that computes only shapes. x has `length` tokens on a rank.
RunReport pass(int ranks, Regions kind, const MakeKit& make_kit, const Hold& hold,
               std::int64_t length, std::int64_t& held) {
    return classroom(ranks, /*numbers=*/false)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = regions(kind)(device, rank.world());
        const int first = kSizes.first_block();
        const auto blocks =
            make_gpt_layers({device, DType::bf16, 1, ""}, kSizes, first,
                            first + static_cast<int>(kBlocks), make_kit(rank, *tp));
        hold(*blocks);
        Saved saved;
        const Tensor y =
            blocks->forward(device.empty({length, kBatch, kHidden}, DType::bf16), saved);
        if (rank.index() == 0) {
            held = -y.bytes();
            for (const Storage* storage = device.live(); storage != nullptr;
                 storage = storage->next)
                if (storage->category == MemoryCategory::activations)
                    held += storage->bytes;
        }
        blocks->backward(y, saved);
    });
}

std::map<std::string, std::int64_t> calls_of(const RunReport& report) {
    std::map<std::string, std::int64_t> calls;
    for (const Traffic& traffic : report.ranks[0].traffic)
        calls[traffic.verb] += traffic.calls;
    return calls;
}

}  // namespace

TEST_CASE(
    "Selective recomputation computes a rank's share of the scores, without messages",
    "[parallel][activations]") {
    constexpr std::int64_t kSbh = kLength * kBatch * kHidden;
    constexpr std::int64_t kScores = kBatch * kHeads * kLength * kLength;
    const Regions kind = GENERATE(Regions::replicated, Regions::sequence_parallel);
    for (const int t : {1, 2, 4}) {
        CAPTURE(t);
        const std::int64_t length = kind == Regions::replicated ? kLength : kLength / t;
        const auto keep = [](Sequential&) {};
        const auto full = [](Sequential& blocks) {
            recompute_modules(blocks, 0, blocks.size());
        };
        const MakeKit plain = [](Rank&, TensorParallel& tp) {
            return tensor_parallel({}, tp);
        };
        const MakeKit selective = [](Rank&, TensorParallel& tp) {
            return selective_recompute(tensor_parallel({}, tp));
        };
        const MakeKit nested = [](Rank&, TensorParallel& tp) {
            return tensor_parallel(selective_recompute({}), tp);
        };
        std::int64_t all = 0, recomputed = 0, other = 0, input = 0;
        const auto calls = calls_of(pass(t, kind, plain, keep, length, all));
        CHECK(calls_of(pass(t, kind, selective, keep, length, recomputed)) == calls);
        CHECK(calls_of(pass(t, kind, nested, keep, length, other)) == calls);
        CHECK(recomputed == all - kBlocks * 2 * kScores / t);
        CHECK(other == recomputed);
        // Full recomputation keeps only a block's input, and sends the block's forward
        // messages again.
        const auto again = calls_of(pass(t, kind, plain, full, length, input));
        CHECK(input == kBlocks * 2 * kSbh * length / kLength);
        for (const auto& [verb, count] : again) {
            CAPTURE(verb);
            CHECK(count == calls.at(verb) + 2 * kBlocks);
        }
    }
}

TEST_CASE("A core that receives other ranks' keys is recomputed with its messages",
          "[parallel][activations]") {
    const int ranks = 4;
    std::int64_t all = 0, recomputed = 0;
    const auto keep = [](Sequential&) {};
    const auto bytes_sent = [&](bool selective, std::int64_t& held) {
        const auto report = pass(
            ranks, Regions::replicated,
            [&](Rank& rank, TensorParallel&) {
                const GptKit kit = context_parallel({}, rank.world(),
                                                    ContextMethod::ring_self_attention);
                return selective ? selective_recompute(kit) : kit;
            },
            keep, kLength / ranks, held);
        return report.ranks[0].bytes_sent();
    };
    // A rank of Ring Self-Attention sends 2 (N-1) e numbers forward, 6 (N-1) e backward.
    constexpr std::int64_t kE = kLength / ranks * kBatch * kHidden * 2;  // bytes
    CHECK(bytes_sent(false, all) == kBlocks * 8 * (ranks - 1) * kE);
    CHECK(bytes_sent(true, recomputed) == kBlocks * 10 * (ranks - 1) * kE);
    CHECK(recomputed == all - kBlocks * 2 * kBatch * kHeads * kLength / ranks * kLength);
}

}  // namespace lockstep::test
