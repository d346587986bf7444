#include "src/pipeline/picture_axis.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

std::vector<std::string> labels(Picoseconds end, double per_unit, int most) {
    std::vector<std::string> found;
    for (const AxisTick& tick : axis_ticks(end, per_unit, most))
        found.push_back(tick.label);
    return found;
}

using Labels = std::vector<std::string>;

}  // namespace

TEST_CASE("an axis has round times in the unit shown", "[pipeline]") {
    CHECK(labels(27, 1, 8) == Labels{"0", "5", "10", "15", "20", "25"});
    CHECK(labels(81, 3, 8) == Labels{"0", "5", "10", "15", "20", "25"});
    CHECK(labels(1100, 1000, 4) == Labels{"0", "0.5", "1"});
    CHECK(labels(7000, 1e4, 7) ==
          Labels{"0", "0.1", "0.2", "0.3", "0.4", "0.5", "0.6", "0.7"});
    CHECK(labels(3'600'000, 1, 3) == Labels{"0", "2000000"});
    CHECK(axis_ticks(81, 3, 8)[1].time == 15);
}

TEST_CASE("an axis has no times between whole numbers, and one at least", "[pipeline]") {
    CHECK(labels(2, 1, 100) == Labels{"0", "1", "2"});
    CHECK(labels(0, 1, 10) == Labels{"0"});
    CHECK(labels(0, 1e9, 0) == Labels{"0"});
}

TEST_CASE("an axis never has more times than asked for", "[pipeline]") {
    for (Picoseconds end = 1; end < 2000; end += 7)
        for (const double per_unit : {1., 3., 4., 1000.})
            for (const int most : {1, 2, 5, 9}) {
                const auto ticks = axis_ticks(end, per_unit, most);
                INFO(end << " by " << per_unit << ", at most " << most);
                CHECK(ticks.size() <= static_cast<std::size_t>(most) + 1);
                CHECK(ticks.back().time <= end);
            }
}

}  // namespace lockstep::test
