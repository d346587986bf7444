// A tensor should be a sum over the ranks. The values that the ranks computed instead
// show which mistake was made.

#include "lessons/assignments/suspects.hpp"
#include "lessons/grader/judge.hpp"
#include "tests/catch.hpp"

using namespace lockstep;
using namespace lockstep::lessons;
using Catch::Matchers::ContainsSubstring;

namespace {

HostTensor vector_of(double first, double second) {
    return HostTensor::of<double>({2}, {first, second});
}

const HostTensor kSum = vector_of(9, -6);

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

TEST_CASE("a missing sum, a double sum and a mean are recognized", "[grader]") {
    CHECK_THAT(suspected_sum({vector_of(4, 1), vector_of(5, 0), vector_of(0, -7)}, kSum),
               ContainsSubstring("an all-reduce is missing"));
    CHECK_THAT(suspected_sum(OfRanks(3, vector_of(27, -18)), kSum),
               ContainsSubstring("that is 3 times what it should be"));
    // The ranks' means also add up to the sum, but no all-reduce is missing.
    CHECK_THAT(suspected_sum(OfRanks(3, vector_of(3, -2)), kSum),
               ContainsSubstring("that is the mean over the ranks"));
    CHECK(suspected_sum(OfRanks(3, vector_of(9, -5)), kSum).empty());
}

TEST_CASE("results of one rank, or of another shape, are not explained", "[grader]") {
    CHECK(suspected_sum({vector_of(9, -6)}, kSum).empty());
    CHECK(suspected_sum({vector_of(4, 1), HostTensor({3}, DType::f64)}, kSum).empty());
    CHECK(suspected_sum({vector_of(4, 1), HostTensor()}, kSum).empty());
}

TEST_CASE("a ring in the opposite direction is recognized", "[grader]") {
    constexpr Judge::Way kWay = Judge::Way::to_next;
    CHECK(Judge::other_way(sending(1), 4, kWay).empty());
    CHECK_THAT(Judge::other_way(sending(3), 4, kWay), ContainsSubstring("the other way"));
    CHECK(Judge::other_way(RunReport{}, 4, kWay).empty());
}
