// The memory of attention with sharded tokens, from the ledger. Also the longest sequence
// that fits.

#include <utility>

#include "src/device/ledger.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/attention.hpp"

namespace lockstep::test {

namespace {

constexpr std::int64_t kBatch = 2, kHeads = 8, kKeyHeads = 4, kWidth = 3;

/// Returns a rank's peak memory, in f32 elements, in forward only or in both passes.
std::int64_t peak(ContextMethod method, int ranks, std::int64_t tokens, Passes passes) {
    const Problem problem{tokens, kBatch, {kHeads, true, kKeyHeads}, kWidth, DType::f32};
    const RunReport report =
        attend_zeros(problem, method, TokenOrder::contiguous, passes, shapes_only(ranks));
    for (const RankReport& rank : report.ranks)
        REQUIRE(rank.memory.peak == report.ranks.front().memory.peak);
    return report.ranks.front().memory.peak / bytes_of(DType::f32);
}

/// The sizes, in elements, that follow from a rank's share of the tokens.
struct Shares {
    std::int64_t share;
    std::int64_t y = share * kBatch * kHeads * kWidth;
    std::int64_t rows = share * kBatch * kHeads;  ///< one number for each row and head
    std::int64_t block = share * kBatch * 2 * kKeyHeads * kWidth;  ///< 2 e
    std::int64_t x = y + block;
};

}  // namespace

TEST_CASE("Ring Self-Attention holds s^2/N scores twice, in backward three times",
          "[parallel][sim]") {
    const int ranks = GENERATE(2, 3, 4, 8);
    const std::int64_t s = 96;
    const std::int64_t all = kBatch * kHeads * s * s / ranks;
    const auto with_square = [&](Passes passes) {
        const auto at = [&](std::int64_t tokens) {
            return peak(ContextMethod::ring_self_attention, ranks, tokens, passes);
        };
        return (at(3 * s) - 2 * at(2 * s) + at(s)) / 2;
    };
    CAPTURE(ranks);
    // The terms in s^2 are the scores and their softmax.
    CHECK(with_square(Passes::forward) == 2 * all);
    // In backward, they are the softmax, its gradient and the scores' gradient.
    CHECK(with_square(Passes::both) == 3 * all);
}

TEST_CASE("The other methods hold nothing that grows with the square of the sequence",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(ContextMethod::ring_attention,
                                          ContextMethod::gather, ContextMethod::ulysses);
    const Passes passes = GENERATE(Passes::forward, Passes::both);
    for (const int ranks : {1, 2, 4})
        for (const std::int64_t s : {96, 960}) {
            CAPTURE(name_of(method), ranks, s);
            CHECK(peak(method, ranks, 2 * s, passes) ==
                  2 * peak(method, ranks, s, passes));
        }
}

TEST_CASE(
    "Gathered keys and values are 2 N e elements, and backward holds the same for "
    "gradients",
    "[parallel][sim]") {
    for (const int ranks : {1, 2, 3, 4, 8}) {
        const Shares held{96};
        const std::int64_t all = ranks * held.block;
        CAPTURE(ranks);
        CHECK(peak(ContextMethod::gather, ranks, std::int64_t{96} * ranks,
                   Passes::forward) ==
              held.x + held.y + 2 * held.rows + held.block + all);
        // x, dx, y, dy and log_sum_exp; also the result of reduce_scatter.
        CHECK(
            peak(ContextMethod::gather, ranks, std::int64_t{96} * ranks, Passes::both) ==
            2 * held.x + 2 * held.y + held.rows + 2 * all + held.block);
    }
}

TEST_CASE("A ring holds two blocks of keys and values, and three of gradients",
          "[parallel][sim]") {
    for (const int ranks : {3, 4, 8}) {
        const Shares held{96};
        CAPTURE(ranks);
        CHECK(peak(ContextMethod::ring_attention, ranks, std::int64_t{96} * ranks,
                   Passes::forward) == held.x + held.y + 2 * held.rows + 2 * held.block);
        // x, dx, y, dy, log_sum_exp, dy_y; this block and the next; this block's own
        // gradient, its arriving gradient, and the gradient of the last block, which is
        // being sent.
        CHECK(peak(ContextMethod::ring_attention, ranks, std::int64_t{96} * ranks,
                   Passes::both) ==
              2 * held.x + 2 * held.y + 2 * held.rows + 5 * held.block);
    }
}

TEST_CASE("A rank's memory depends only on its own tokens, unless it gathers",
          "[parallel][sim]") {
    const auto of_share = [](ContextMethod method, int ranks) {
        return peak(method, ranks, std::int64_t{96} * ranks, Passes::both);
    };
    CHECK(of_share(ContextMethod::ring_attention, 8) ==
          of_share(ContextMethod::ring_attention, 4));
    CHECK(of_share(ContextMethod::ulysses, 4) == of_share(ContextMethod::ulysses, 2));
    CHECK(of_share(ContextMethod::gather, 8) > of_share(ContextMethod::gather, 4));
}

namespace {

constexpr int kRanks = 4;
constexpr std::int64_t kCapacity = 600'000;

/// Returns whether forward and backward of kRanks * share tokens fit a rank's memory.
bool fits(ContextMethod method, std::int64_t share, bool numbers) {
    const Problem problem{
        kRanks * share, kBatch, {kHeads, true, kKeyHeads}, kWidth, DType::f32};
    sim::ClusterOptions options = shapes_only(kRanks);
    options.spec.memory_bytes = kCapacity;
    options.numbers = numbers;
    try {
        attend_zeros(problem, method, TokenOrder::contiguous, Passes::both,
                     std::move(options));
    } catch (const OutOfMemoryError&) {
        return false;
    }
    return true;
}

/// Returns the longest share that fits. Uses bisection, in runs of shapes only.
std::int64_t longest_share(ContextMethod method) {
    std::int64_t fitting = 0, too_long = kCapacity;
    while (too_long - fitting > 1) {
        const std::int64_t middle = (fitting + too_long) / 2;
        (fits(method, middle, /*numbers=*/false) ? fitting : too_long) = middle;
    }
    return fitting;
}

}  // namespace

TEST_CASE("The longest sequence that fits is found from shapes, and fits with numbers",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const std::int64_t longest = longest_share(method);
    CAPTURE(name_of(method), longest);
    CHECK(fits(method, longest, /*numbers=*/true));
    CHECK_FALSE(fits(method, longest + 1, /*numbers=*/true));
    if (method == ContextMethod::ring_self_attention) return;
    // If memory is proportional to tokens, a token's bytes tell how many tokens fit.
    const std::int64_t bytes_of_token =
        peak(method, kRanks, kRanks, Passes::both) * bytes_of(DType::f32);
    CHECK(longest == kCapacity / bytes_of_token);
}

TEST_CASE("Scores limit Ring Self-Attention's sequences first", "[parallel][sim]") {
    const std::int64_t scores = longest_share(ContextMethod::ring_self_attention);
    // Three tensors of b a (s/N) s elements must fit.
    CHECK(3 * kBatch * kHeads * scores * scores * kRanks * bytes_of(DType::f32) <=
          kCapacity);
    for (const ContextMethod method :
         {ContextMethod::ring_attention, ContextMethod::gather, ContextMethod::ulysses})
        CHECK(longest_share(method) > 5 * scores);
}

}  // namespace lockstep::test
