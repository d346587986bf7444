// Compares attention over sharded tokens, by every method, with attention on one device.

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "tests/catch.hpp"
#include "tests/parallel/attention.hpp"

using namespace lockstep;
using namespace lockstep::test;

namespace {

constexpr std::int64_t kWidth = 3;
constexpr std::int64_t kBatch = 2;
constexpr TokenOrder kOrders[] = {TokenOrder::contiguous, TokenOrder::striped,
                                  TokenOrder::zigzag};

/// Returns a problem whose tokens and heads are divisible by 1, 2, 3, 4 and 8 ranks.
Problem problem(bool causal, std::int64_t kv_heads = 0, DType dtype = DType::f64) {
    return {48, kBatch, {24, causal, kv_heads}, kWidth, dtype};
}

/// Returns the largest |score| of a query and a key that it sees. Every head has keys.
double largest_score(const Problem& problem) {
    const HostTensor x = problem.x();
    double largest = 0;
    const auto at = [&](std::int64_t token, std::int64_t sequence, std::int64_t column) {
        return x.at((token * problem.batch + sequence) * problem.columns() + column);
    };
    const std::int64_t keys = problem.sizes.heads * problem.width;
    for (std::int64_t query = 0; query < problem.tokens; ++query)
        for (std::int64_t key = 0; key <= query; ++key)
            for (std::int64_t i = 0; i < problem.batch * problem.sizes.heads; ++i) {
                const std::int64_t sequence = i / problem.sizes.heads;
                const std::int64_t first = i % problem.sizes.heads * problem.width;
                double score = 0;
                for (std::int64_t d = first; d < first + problem.width; ++d)
                    score += at(query, sequence, d) * at(key, sequence, keys + d);
                largest = std::max(largest, std::abs(score));
            }
    return largest / std::sqrt(static_cast<double>(problem.width));
}

}  // namespace

TEST_CASE("Attention over sharded tokens equals one device's, by every method",
          "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    const bool causal = GENERATE(false, true);
    for (const DType dtype : {DType::f64, DType::f32}) {
        const Problem given = problem(causal, 0, dtype);
        const Outcome alone = attend_alone(given);
        for (const int ranks : {1, 2, 3, 4, 8})
            for (const TokenOrder order : kOrders) {
                CAPTURE(name_of(method), causal, ranks, name_of(order), name_of(dtype));
                check_alike(attend_shared(given, ranks, method, order), alone,
                            dtype == DType::f64 ? 1e-12 : 1e-5);
            }
    }
}

TEST_CASE("Grouped queries over sharded tokens equal one device's", "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    for (const std::int64_t kv_heads : {12, 8}) {
        const Problem given = problem(true, kv_heads);
        const Outcome alone = attend_alone(given);
        for (const int ranks : {2, 4}) {
            CAPTURE(name_of(method), kv_heads, ranks);
            check_alike(attend_shared(given, ranks, method, TokenOrder::zigzag), alone);
        }
    }
}

TEST_CASE("One head of keys can serve all queries if heads are not sharded",
          "[parallel][sim]") {
    const Problem given = problem(true, 1);
    const Outcome alone = attend_alone(given);
    for (const ContextMethod method :
         {ContextMethod::ring_self_attention, ContextMethod::ring_attention,
          ContextMethod::gather}) {
        CAPTURE(name_of(method));
        check_alike(attend_shared(given, 3, method, TokenOrder::striped), alone);
    }
}

TEST_CASE("Every method handles scores up to 60", "[parallel][sim]") {
    const ContextMethod method = GENERATE(from_range(all_context_methods()));
    Problem given = problem(true);
    // Scores grow with the square of x.
    given.scale = std::sqrt(60 / largest_score(given));
    REQUIRE_THAT(largest_score(given), Catch::Matchers::WithinAbs(60, 1e-9));
    const Outcome alone = attend_alone(given);
    check_alike(attend_shared(given, 4, method, TokenOrder::zigzag), alone);
    given.dtype = DType::f32;
    const Outcome single = attend_shared(given, 4, method, TokenOrder::zigzag);
    // A score of 60 has an error of 60 epsilon, which is the relative error of its
    // exponential.
    check_alike(single, attend_alone(given), 4 * 60 * 1.2e-7);
}

TEST_CASE("Every method gives the same bits under cheap and under full checks",
          "[parallel][sim]") {
    for (const ContextMethod method : all_context_methods()) {
        CAPTURE(name_of(method));
        const auto run = [&](sim::CheckLevel level) {
            return attend_shared(problem(true), 4, method, TokenOrder::zigzag, level);
        };
        CHECK(run(sim::CheckLevel::cheap).results == run(sim::CheckLevel::full).results);
    }
}
