#include "src/cost/virtual_time.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

Picoseconds countable_picoseconds(double seconds) {
    constexpr double kMostSeconds = 0x1p63 / static_cast<double>(kSecond);
    // The comparison is false for infinity and for what is no number.
    return seconds < kMostSeconds ? picoseconds(seconds) : kUncountable;
}

Picoseconds time_product(std::int64_t count, Picoseconds time) {
    Picoseconds product = 0;
    return __builtin_mul_overflow(count, time, &product) ? kUncountable : product;
}

void refuse_uncountable(int rank, SourceLine at) {
    throw UsageError(
        fmt::format("rank {} would get beyond 2^63 picoseconds of virtual time, 106 "
                    "days, which is all that can be counted; give the cluster shorter "
                    "times or faster links and devices, or the program less to do",
                    rank),
        at);
}

}  // namespace lockstep
