// The assignment `ring-attention` says why numbers are wrong: each usual mistake is made
// here by arithmetic, on what one device has.

#include <cmath>

#include "lessons/assignments/ring_attention/grading/causes.hpp"
#include "lessons/grader/judge.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons::ring_attention;
using Catch::Matchers::ContainsSubstring;

namespace {

/// Blocks of 3, 3, 3 and 4 tokens.
SharedSequence sequence(bool causal) {
    return {4, 13, 1, 2, 3, causal};
}

HostTensor values_of(const SharedSequence& of, double step) {
    HostTensor values(of.shape(), DType::f64);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, std::sin(step * static_cast<double>(i + 1)));
    return values;
}

WholeAttention whole_of(const SharedSequence& of) {
    return {values_of(of, 1.1), values_of(of, 2.3), values_of(of, 3.7),
            values_of(of, 5.3), of.heads,           of.causal};
}

/// Each rank's rows, or, moved on, those of the rank that is so many behind it.
Left left_of(const SharedSequence& of, const HostTensor& whole, int behind = 0) {
    Left left;
    for (int rank = 0; rank < of.ranks; ++rank) {
        const Chunk own = of.own((rank + behind) % of.ranks);
        left.push_back(whole.rows(own.begin, own.count));
    }
    return left;
}

/// Keys for which `sees(query, key)`.
View seeing(const SharedSequence& of, const WholeAttention& whole,
            const std::function<bool(std::int64_t, std::int64_t)>& sees) {
    return {[=](std::int64_t query) {
                std::vector<std::int64_t> keys;
                for (std::int64_t key = 0; key < of.tokens; ++key)
                    if (sees(query, key)) keys.push_back(key);
                return keys;
            },
            whole.factor()};
}

/// Returns what is said of rank 2's y, if queries see those keys.
std::string said_of_y(bool causal,
                      const std::function<bool(std::int64_t, std::int64_t)>& sees) {
    const SharedSequence of = sequence(causal);
    const WholeAttention whole = whole_of(of);
    const HostTensor y = attention_of(whole, seeing(of, whole, sees)).y;
    return cause_of_y(of, whole, 2, left_of(of, y));
}

/// Returns what is said of rank 2's gradient, if those pairs contribute, and ranks have
/// those of the ranks that are so many behind them.
std::string said_of_gradient(
    const std::string& name, int behind,
    const std::function<bool(std::int64_t, std::int64_t)>& sees) {
    const SharedSequence of = sequence(false);
    const WholeAttention whole = whole_of(of);
    const WholeResult right = attention_of(whole, right_view(whole));
    const WholeGradients made = gradients_of(whole, right, seeing(of, whole, sees));
    const HostTensor& gradient =
        name == "dq" ? made.dq : (name == "dk" ? made.dk : made.dv);
    return cause_of_gradient(of, whole, 2, name, left_of(of, gradient, behind));
}

RunReport sending(int step) {
    RunReport report;
    for (int rank = 0; rank < 4; ++rank) {
        TraceFlow flow;
        flow.source_rank = rank;
        flow.destination_rank = (rank + step) % 4;
        report.flows.push_back(flow);
    }
    return report;
}

}  // namespace

TEST_CASE("one device's attention: weights sum to 1, and gradients are differences") {
    const SharedSequence of{1, 5, 1, 2, 3, true};
    WholeAttention whole = whole_of(of);
    const WholeResult right = attention_of(whole, right_view(whole));
    const WholeGradients gradients = gradients_of(whole, right, right_view(whole));
    const auto loss = [&](HostTensor& changed, std::int64_t at, double by) {
        const double kept = changed.at(at);
        changed.set(at, kept + by);
        const HostTensor y = attention_of(whole, right_view(whole)).y;
        changed.set(at, kept);
        double sum = 0;
        for (std::int64_t i = 0; i < y.elements(); ++i)
            sum += whole.dy.at(i) * y.at(i);
        return sum;
    };
    constexpr double kStep = 1e-5;
    for (const auto& [input, gradient] : {std::pair{&whole.queries, &gradients.dq},
                                          {&whole.keys, &gradients.dk},
                                          {&whole.values, &gradients.dv}})
        for (std::int64_t i = 0; i < input->elements(); ++i)
            CHECK_THAT((loss(*input, i, kStep) - loss(*input, i, -kStep)) / (2 * kStep),
                       Catch::Matchers::WithinAbs(gradient->at(i), 1e-8));
}

TEST_CASE("blocks that are missing are named") {
    const SharedSequence of = sequence(false);
    CHECK_THAT(
        said_of_y(false,
                  [&](auto query, auto key) { return of.owner(query) == of.owner(key); }),
        ContainsSubstring("own block alone"));
    CHECK_THAT(said_of_y(false,
                         [&](auto query, auto key) {
                             return of.hops(of.owner(query), of.owner(key)) < 3;
                         }),
               ContainsSubstring("the first 3 blocks that come, of 4"));
    CHECK_THAT(said_of_y(false, [&](auto, auto key) { return of.owner(key) != 1; }),
               ContainsSubstring("the block of rank 1 is missing"));
    CHECK_THAT(said_of_y(false,
                         [&](auto query, auto key) {
                             return of.hops(of.owner(query), of.owner(key)) == 3;
                         }),
               ContainsSubstring("begun anew"));
}

TEST_CASE("masks that hide other keys are told apart") {
    const SharedSequence of = sequence(true);
    const auto own = [&](std::int64_t token) {
        return token - of.own(of.owner(token)).begin;
    };
    CHECK_THAT(said_of_y(true, [](auto, auto) { return true; }),
               ContainsSubstring("without the mask"));
    CHECK_THAT(said_of_y(false, [](auto query, auto key) { return key <= query; }),
               ContainsSubstring("none is asked"));
    CHECK_THAT(said_of_y(true, [&](auto query, auto key) { return own(key) <= query; }),
               ContainsSubstring("keys.first is missing"));
    CHECK_THAT(said_of_y(true, [&](auto query, auto key) { return key <= own(query); }),
               ContainsSubstring("queries.first is missing"));
    CHECK_THAT(
        said_of_y(true, [&](auto query, auto key) { return own(key) <= own(query); }),
        ContainsSubstring("on their ranks"));
    CHECK_THAT(said_of_y(true,
                         [&](auto query, auto key) {
                             const int rank = of.owner(query);
                             const int taken = (2 * rank - of.owner(key) + 4) % 4;
                             return own(key) + of.own(taken).begin <= query;
                         }),
               ContainsSubstring("r + h"));
}

TEST_CASE("gradients that are not home are told so") {
    const SharedSequence of = sequence(false);
    const auto all = [](auto, auto) { return true; };
    CHECK_THAT(said_of_gradient("dk", 3, all),
               ContainsSubstring("rank 1's block, 3 hops short of home"));
    CHECK_THAT(said_of_gradient("dv", 0,
                                [&](auto query, auto key) {
                                    return of.owner(query) == of.owner(key);
                                }),
               ContainsSubstring("has not come home"));
    CHECK_THAT(said_of_gradient("dk", 0,
                                [&](auto query, auto key) {
                                    return of.owner(query) != of.owner(key);
                                }),
               ContainsSubstring("own queries contribute is missing"));
    CHECK_THAT(
        said_of_gradient("dv", 0, [&](auto query, auto) { return of.owner(query) != 0; }),
        ContainsSubstring("rank 0 contributes is missing"));
    CHECK_THAT(said_of_gradient("dq", 0,
                                [&](auto query, auto key) {
                                    return of.owner(query) == of.owner(key);
                                }),
               ContainsSubstring("own block alone"));
}

TEST_CASE("what no known mistake gives is not explained") {
    const SharedSequence of = sequence(false);
    const WholeAttention whole = whole_of(of);
    const Left other = left_of(of, values_of(of, 0.7));
    const Left malformed(4, HostTensor({2, 2}, DType::f32));
    CHECK(cause_of_y(of, whole, 2, other).empty());
    CHECK(cause_of_y(of, whole, 2, malformed).empty());
    CHECK_THAT(cause_of_y(of, whole, 2, left_of(of, HostTensor(of.shape(), DType::f64))),
               ContainsSubstring("0 everywhere"));
    for (const char* name : {"dq", "dk", "dv"})
        CHECK(cause_of_gradient(of, whole, 2, name, other).empty());
}

TEST_CASE("a ring that turns the other way is told from one that does not") {
    using lessons::Judge;
    constexpr Judge::Way kWay = Judge::Way::to_next;
    CHECK(Judge::other_way(sending(1), 4, kWay).empty());
    CHECK_THAT(Judge::other_way(sending(3), 4, kWay), ContainsSubstring("the other way"));
    CHECK(Judge::other_way(RunReport{}, 4, kWay).empty());
}
