#include <fmt/format.h>

#include "src/parallel/tensor_parallel_kit.hpp"
#include "src/parallel/vocabulary_parallel.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/twin.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kLength = 24, kBatch = 2, kHidden = 48, kHeads = 24;
constexpr std::int64_t kTokens = kLength * kBatch;
constexpr std::int64_t kBytes = 2;  // of a 16-bit number
constexpr int kWays[] = {1, 2, 3, 4, 8};

const BlockSizes kBlock{kHidden, kHeads};

/// The traffic that a rank has sent by one verb.
struct Sent {
    std::int64_t calls = 0, messages = 0, bytes = 0;
    bool operator==(const Sent&) const = default;
};
using SentByVerb = std::map<std::string, Sent>;

SentByVerb sent_by(const RankReport& rank) {
    SentByVerb sent;
    for (const Traffic& traffic : rank.traffic) {
        Sent& verb = sent[traffic.verb];
        verb.calls += traffic.calls;
        verb.messages += traffic.messages_sent;
        verb.bytes += traffic.bytes_sent;
    }
    return sent;
}

enum class Halves { forward, both };

/// Runs the forward, or both passes, of a block in 16 bits. Only shapes are computed.
RunReport run_block(int ways, Regions kind, Halves halves) {
    return classroom(ways, /*numbers=*/false)->run([&](Rank& rank) {
        Device& device = rank.device();
        const auto tp = regions(kind)(device, rank.world());
        const auto block =
            make_block({device, DType::bf16, 1, "h.0"}, kBlock, tensor_parallel({}, *tp));
        const std::int64_t length =
            kind == Regions::replicated ? kLength : kLength / ways;
        Saved saved;
        const Tensor y =
            block->forward(device.empty({length, kBatch, kHidden}, DType::bf16), saved);
        if (halves == Halves::both) block->backward(y, saved);
    });
}

}  // namespace

TEST_CASE("A block's messages are four all-reduces of b s h numbers", "[parallel][sim]") {
    const std::int64_t whole = kTokens * kHidden * kBytes;
    for (const int t : kWays) {
        CAPTURE(t);
        const std::int64_t hops = std::int64_t{2} * (t - 1);
        const Sent one{1, hops, hops * whole / t};
        const auto times = [&](int calls) {
            return Sent{calls, calls * one.messages, calls * one.bytes};
        };
        const RunReport forward = run_block(t, Regions::replicated, Halves::forward);
        const RunReport both = run_block(t, Regions::replicated, Halves::both);
        for (std::size_t rank = 0; rank < forward.ranks.size(); ++rank) {
            CHECK(sent_by(forward.ranks[rank]) == SentByVerb{{"all_reduce", times(2)}});
            CHECK(sent_by(both.ranks[rank]) == SentByVerb{{"all_reduce", times(4)}});
            // A layer sends 8 b s h (t-1)/t numbers (Narayanan et al. 2021, section 3.2).
            CHECK(both.ranks[rank].bytes_sent() ==
                  8 * kTokens * kHidden * (t - 1) / t * kBytes);
        }
    }
}

TEST_CASE(
    "With sequence parallelism a block's messages are all-gathers and reduce-scatters",
    "[parallel][sim]") {
    const std::int64_t whole = kTokens * kHidden * kBytes;
    for (const int t : kWays) {
        CAPTURE(t);
        const auto times = [&](std::int64_t calls) {
            return Sent{calls, calls * (t - 1), calls * (t - 1) * whole / t};
        };
        const RunReport forward =
            run_block(t, Regions::sequence_parallel, Halves::forward);
        const RunReport both = run_block(t, Regions::sequence_parallel, Halves::both);
        for (std::size_t rank = 0; rank < forward.ranks.size(); ++rank) {
            CHECK(sent_by(forward.ranks[rank]) ==
                  SentByVerb{{"all_gather", times(2)}, {"reduce_scatter", times(2)}});
            // Backward uses the conjugate operations, and gathers the two saved inputs
            // again.
            CHECK(sent_by(both.ranks[rank]) ==
                  SentByVerb{{"all_gather", times(2 + 2 + 2)},
                             {"reduce_scatter", times(4)}});
        }
    }
}

TEST_CASE("The loss of a sharded vocabulary sends six numbers per token",
          "[parallel][sim]") {
    for (const int t : kWays) {
        CAPTURE(t);
        const RunReport report = classroom(t, /*numbers=*/false)->run([&](Rank& rank) {
            TensorParallel tp(rank.device(), rank.world());
            const Tensor logits = rank.device().empty({kLength, kBatch, 5}, DType::bf16);
            const Tensor targets = rank.device().empty({kLength, kBatch}, DType::i32);
            const LossResult loss = vocabulary_parallel_cross_entropy(
                tp, logits, targets, std::int64_t{5} * t);
        });
        for (const RankReport& rank : report.ranks)
            // The numbers are f32, like all statistics of rows.
            CHECK(rank.bytes_sent() == 6 * kTokens * (t - 1) / t * 4);
    }
}

TEST_CASE("A block holds the paper's activations, less dropout", "[parallel][sim]") {
    // Korthikanti et al. 2022, 2205.05198: s b h (10 + 24/t + 5 a s/(h t)) bytes, with
    // sequence parallelism s b h/t (34 + 5 a s/h). Our block has no dropout: of
    // the 10 it lacks 2 (two masks), of the 5 it lacks 3 (a mask, and dropout's output).
    // Each norm keeps two numbers a token, which the paper leaves out.
    const auto held = [](int t, Regions kind) {
        std::int64_t bytes = 0;
        classroom(t, /*numbers=*/false)->run([&](Rank& rank) {
            Device& device = rank.device();
            const auto tp = regions(kind)(device, rank.world());
            const auto block = make_block({device, DType::bf16, 1, "h.0"}, kBlock,
                                          tensor_parallel({}, *tp));
            const std::int64_t length =
                kind == Regions::replicated ? kLength : kLength / t;
            Saved saved;
            block->forward(device.empty({length, kBatch, kHidden}, DType::bf16), saved);
            if (rank.index() > 0) return;
            for (const Storage* storage = device.live(); storage != nullptr;
                 storage = storage->next)
                if (storage->category == MemoryCategory::activations)
                    bytes += storage->bytes;
        });
        return bytes;
    };
    const std::int64_t sbh = kTokens * kHidden;
    const std::int64_t scores = kBatch * kHeads * kLength * kLength;
    const std::int64_t statistics = std::int64_t{2} * 2 * kTokens * 4;  // in f32
    for (const int t : kWays) {
        CAPTURE(t);
        CHECK(held(t, Regions::replicated) ==
              sbh * (10 - 2) + (24 * sbh + (5 - 3) * scores) / t + statistics);
        CHECK(held(t, Regions::sequence_parallel) ==
              ((34 - 2) * sbh + (5 - 3) * scores + statistics) / t);
    }
}

}  // namespace lockstep::test
