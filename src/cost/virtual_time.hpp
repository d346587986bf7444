#pragma once

#include <limits>

#include "src/core/source_line.hpp"
#include "src/core/units.hpp"

namespace lockstep {

// Virtual time is counted up to 2^63 picoseconds, 106 days. Any later time is
// kUncountable, and so are its sums and products. A clock refuses such a time.

inline constexpr Picoseconds kUncountable = std::numeric_limits<Picoseconds>::max();

/// Rounds a time in seconds, which is not negative, to picoseconds.
inline Picoseconds countable_picoseconds(double seconds) {
    constexpr double kMostSeconds = 0x1p63 / static_cast<double>(kSecond);
    // The comparison is false for infinity and NaN.
    return seconds < kMostSeconds ? picoseconds(seconds) : kUncountable;
}

/// Returns the sum of two times that are not negative.
inline Picoseconds time_sum(Picoseconds a, Picoseconds b) {
    return b > kUncountable - a ? kUncountable : a + b;
}

/// Returns `count` times a time; neither is negative.
inline Picoseconds time_product(std::int64_t count, Picoseconds time) {
    Picoseconds product = 0;
    return __builtin_mul_overflow(count, time, &product) ? kUncountable : product;
}

/// Throws UsageError because line `at` has made a rank's time uncountable.
[[noreturn]] void refuse_uncountable(int rank, SourceLine at);
inline void require_countable(Picoseconds time, int rank, SourceLine at) {
    if (time == kUncountable) [[unlikely]]
        refuse_uncountable(rank, at);
}

}  // namespace lockstep
