#include "src/core/units.hpp"
#include "tests/catch.hpp"

namespace lockstep {

TEST_CASE("Times are written in the unit that fits, with three digits", "[core]") {
    REQUIRE(time_text(0) == "0 ps");
    REQUIRE(time_text(3) == "3 ps");
    REQUIRE(time_text(1'500) == "1.5 ns");
    REQUIRE(time_text(12'000'000) == "12 us");
    REQUIRE(time_text(1'234'567'890) == "1.23 ms");
    REQUIRE(time_text(99'960'000'000) == "100 ms");
    REQUIRE(time_text(100 * kSecond) == "100 s");
    REQUIRE(time_text(-1'500) == "-1.5 ns");
}

TEST_CASE("Bytes are written in powers of 1024", "[core]") {
    REQUIRE(bytes_text(640) == "640 B");
    REQUIRE(bytes_text(1024 + 512) == "1.5 KiB");
    REQUIRE(bytes_text(std::int64_t{80} << 30) == "80 GiB");
    REQUIRE(bytes_text(std::int64_t{3} << 40) == "3 TiB");
}

TEST_CASE("Counts are written with commas", "[core]") {
    REQUIRE(count_text(0) == "0");
    REQUIRE(count_text(999) == "999");
    REQUIRE(count_text(1'000) == "1,000");
    REQUIRE(count_text(1'234'567) == "1,234,567");
    REQUIRE(count_text(-123'456) == "-123,456");
}

TEST_CASE("Seconds are rounded to picoseconds", "[core]") {
    REQUIRE(picoseconds(1) == kSecond);
    REQUIRE(picoseconds(1.6e-12) == 2);
    REQUIRE(picoseconds(0) == 0);
}

}  // namespace lockstep
