// Compares bytes, messages, work and time of attention over sharded tokens with formulas
// in the methods' headers and papers.

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "src/device/operations/attention.hpp"
#include "src/parallel/context_traffic.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/attention.hpp"

namespace lockstep::test {

namespace {

constexpr int kWays[] = {1, 2, 3, 4, 8};
constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};

ContextShape shape_of(const Problem& problem, int ranks) {
    return {ranks,
            problem.tokens,
            problem.batch,
            problem.sizes.heads,
            problem.sizes.key_heads(),
            problem.width};
}

Sent operator+(const Sent& a, const Sent& b) {
    return {a.elements + b.elements, a.messages + b.messages};
}

/// Returns what each rank has sent; all ranks must have sent the same amount.
Sent sent_in(const RunReport& report, DType dtype) {
    const RankReport& first = report.ranks.front();
    for (const RankReport& rank : report.ranks) {
        REQUIRE(rank.bytes_sent() == first.bytes_sent());
        REQUIRE(rank.messages_sent() == first.messages_sent());
    }
    return {first.bytes_sent() / bytes_of(dtype), first.messages_sent()};
}

/// Returns how many scores each rank computed in forward, for one head of one sequence.
/// A score costs 4 width + kFlopsOfPair flops; finish_attention's flops do not count.
std::vector<std::int64_t> scores_made(const Problem& problem, const RunReport& report) {
    const auto ranks = static_cast<std::int64_t>(report.ranks.size());
    const std::int64_t heads = problem.batch * problem.sizes.heads;
    const std::int64_t share = problem.tokens / ranks;
    std::vector<std::int64_t> scores;
    for (const RankReport& rank : report.ranks) {
        const std::int64_t attending =
            rank.flops -
            share * heads * (problem.width + ops::FinishAttention::kFlopsOfRow);
        const std::int64_t of_score =
            heads * (4 * problem.width + ops::Attend::kFlopsOfPair);
        REQUIRE(attending % of_score == 0);
        scores.push_back(attending / of_score);
    }
    return scores;
}

}  // namespace

TEST_CASE("Ranks send what the methods' formulas say, forward and backward",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t heads = GENERATE(24, 48);  // query heads; keys have 24 heads
    const bool numbers = GENERATE(false, true);
    const Problem problem{48, 2, {heads, true, 24}, 2, dtype};
    for (const int ranks : kWays) {
        CAPTURE(name_of(method), name_of(dtype), heads, numbers, ranks);
        const auto sent = [&](Passes passes) {
            sim::ClusterOptions options = shapes_only(ranks);
            options.numbers = numbers;
            return sent_in(attend_zeros(problem, method, TokenOrder::contiguous, passes,
                                        std::move(options)),
                           dtype);
        };
        const ContextShape shape = shape_of(problem, ranks);
        const Sent forward = sent_forward(method, shape);
        CHECK(sent(Passes::forward) == forward);
        CHECK(sent(Passes::both) == forward + sent_backward(method, shape));
    }
}

TEST_CASE("The formulas equal the papers' figures", "[parallel]") {
    // Eight tokens a rank, b = 3, a = 6 heads of width 5: a rank has 8 x 3 x 6 x 5 = 720
    // elements of keys, and the same number of values.
    constexpr std::int64_t kOwn = 720;
    const ContextShape shape{4, 32, 3, 6, 6, 5};
    const auto forward = [&](ContextMethod method) {
        return sent_forward(method, shape);
    };
    const auto backward = [&](ContextMethod method) {
        return sent_backward(method, shape);
    };
    // Li et al. 2021, section 3.2.2: 2(N-1) b a (s/N) w forward; 4 times that in all.
    const ContextMethod keys_then_values = ContextMethod::ring_self_attention;
    CHECK(forward(keys_then_values) == Sent{kOwn * 2 * 3, 6});
    CHECK(forward(keys_then_values) + backward(keys_then_values) ==
          Sent{kOwn * 8 * 3, 6 + 2 * 3 + 2 * 2 * 3});
    // Keys and values are in one message. Backward sends them again, and sends their
    // gradients back to their ranks.
    const ContextMethod together = ContextMethod::ring_attention;
    CHECK(forward(together) == Sent{kOwn * 2 * 3, 3});
    CHECK(backward(together) == Sent{kOwn * 2 * 3 + kOwn * 2 * 4, 3 + 4});
    CHECK(forward(ContextMethod::gather) == Sent{kOwn * 2 * 3, 3});
    CHECK(backward(ContextMethod::gather) == Sent{kOwn * 2 * 2 * 3, 6});
    // Jacobs et al. 2023, section 3.2: 4 N h/P, without the part that a rank keeps.
    CHECK(forward(ContextMethod::ulysses) == Sent{4 * kOwn * 3 / 4, 6});
    CHECK(backward(ContextMethod::ulysses) == Sent{4 * kOwn * 3 / 4, 6});
    // Li et al., section 3.2.2: Megatron's layer sends the same amount.
    CHECK(tensor_parallel_elements(shape) == kOwn * 8 * 3);
}

TEST_CASE("A single rank sends nothing", "[parallel]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const ContextShape alone{1, 32, 3, 6, 6, 5};
    CHECK(sent_forward(method, alone) == Sent{});
    CHECK(sent_backward(method, alone) == Sent{});
    CHECK(tensor_parallel_elements(alone) == 0);
}

TEST_CASE("Costs are the same with shapes only, by every method", "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const TokenOrder order = GENERATE(from_range(std::begin(kOrders), std::end(kOrders)));
    const Problem problem{24, 2, {8, true, 4}, 3, DType::f32};
    const auto run = [&](bool numbers) {
        sim::ClusterOptions options = shapes_only(4);
        options.numbers = numbers;
        return attend_zeros(problem, method, order, Passes::both, std::move(options));
    };
    const RunReport numbers = run(true), shapes = run(false);
    CHECK(numbers.makespan() == shapes.makespan());
    for (std::size_t rank = 0; rank < numbers.ranks.size(); ++rank) {
        CAPTURE(name_of(method), name_of(order), rank);
        CHECK(numbers.ranks[rank].flops == shapes.ranks[rank].flops);
        CHECK(numbers.ranks[rank].time.end == shapes.ranks[rank].time.end);
        CHECK(numbers.ranks[rank].memory.peak == shapes.ranks[rank].memory.peak);
        CHECK(numbers.ranks[rank].memory.at_peak == shapes.ranks[rank].memory.at_peak);
    }
}

TEST_CASE("Zigzag order gives every rank the same causal work", "[parallel][sim]") {
    const ContextMethod method =
        GENERATE(ContextMethod::ring_attention, ContextMethod::gather);
    for (const int ranks : kWays) {
        const Problem problem{48, 2, {4, true}, 3, DType::f32};
        const RunReport report = attend_zeros(problem, method, TokenOrder::zigzag,
                                              Passes::forward, shapes_only(ranks));
        // All ranks together compute s(s+1)/2 scores of a causal head.
        for (const std::int64_t scores : scores_made(problem, report))
            CHECK(scores == 48 * 49 / 2 / ranks);
        const RunReport both = attend_zeros(problem, method, TokenOrder::zigzag,
                                            Passes::both, shapes_only(ranks));
        for (const RankReport& rank : both.ranks)
            CHECK(rank.flops == both.ranks.front().flops);
    }
}

TEST_CASE("Striped order gives ranks the same causal work within one block",
          "[parallel][sim]") {
    for (const int ranks : kWays) {
        const Problem problem{192, 1, {2, true}, 3, DType::f32};
        const std::int64_t share = problem.tokens / ranks;
        const std::vector<std::int64_t> scores =
            scores_made(problem, attend_zeros(problem, ContextMethod::ring_attention,
                                              TokenOrder::striped, Passes::forward,
                                              shapes_only(ranks)));
        // Token i of rank r sees r tokens more than token i of rank 0.
        for (std::size_t rank = 0; rank < scores.size(); ++rank)
            CHECK(scores[rank] - scores[0] == static_cast<std::int64_t>(rank) * share);
        CHECK(scores.back() - scores.front() < share * share);
    }
}

TEST_CASE("Contiguous order gives rank r the causal work of r + 1/2 blocks",
          "[parallel][sim]") {
    const ContextMethod method =
        GENERATE(ContextMethod::ring_attention, ContextMethod::gather);
    for (const int ranks : kWays) {
        constexpr std::int64_t kShare = 1000, kBlock = kShare * kShare;
        const Problem problem{kShare * ranks, 1, {2, true}, 3, DType::f32};
        const std::vector<std::int64_t> scores =
            scores_made(problem, attend_zeros(problem, method, TokenOrder::contiguous,
                                              Passes::forward, shapes_only(ranks)));
        // A token also sees itself, which adds kShare / 2 to half of a rank's own block.
        for (std::size_t rank = 0; rank < scores.size(); ++rank)
            CHECK(scores[rank] ==
                  static_cast<std::int64_t>(rank) * kBlock + kBlock / 2 + kShare / 2);
        const double ratio =
            static_cast<double>(scores.back()) / static_cast<double>(scores.front());
        CHECK(std::abs(ratio - (2 * ranks - 1)) <= 2.0 * (ranks - 1) / kShare);
    }
}

TEST_CASE(
    "In a causal ring rank r computes in r + 1 hops if tokens are contiguous, otherwise "
    "in all",
    "[parallel][sim]") {
    const TokenOrder order = GENERATE(from_range(std::begin(kOrders), std::end(kOrders)));
    const int ranks = GENERATE(2, 3, 4, 8);
    const Problem problem{48, 1, {2, true}, 3, DType::f32};
    sim::ClusterOptions options = shapes_only(ranks);
    options.trace = true;
    const RunReport report = attend_zeros(problem, ContextMethod::ring_attention, order,
                                          Passes::both, std::move(options));
    for (int rank = 0; rank < ranks; ++rank)
        for (const char* name : {"attend", "attend_backward"}) {
            CAPTURE(name_of(order), ranks, rank, name);
            CHECK(std::count_if(report.trace.begin(), report.trace.end(),
                                [&](const TraceEvent& event) {
                                    return event.rank == rank && event.name == name;
                                }) ==
                  (order == TokenOrder::contiguous ? rank + 1 : ranks));
        }
}

TEST_CASE("Ring Self-Attention and Ulysses do equal work on all ranks, in any order",
          "[parallel][sim]") {
    const ContextMethod method =
        GENERATE(ContextMethod::ring_self_attention, ContextMethod::ulysses);
    const TokenOrder order = GENERATE(from_range(std::begin(kOrders), std::end(kOrders)));
    const Problem problem{48, 2, {8, true}, 3, DType::f32};
    const RunReport report =
        attend_zeros(problem, method, order, Passes::both, shapes_only(4));
    for (const RankReport& rank : report.ranks) {
        CHECK(rank.flops == report.ranks.front().flops);
        CHECK(rank.time.end == report.ranks.front().time.end);
    }
}

}  // namespace lockstep::test
