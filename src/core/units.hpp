#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

/// Virtual time is integer picoseconds: sums are exact, so equal programs end at equal
/// times.
using Picoseconds = std::int64_t;

constexpr Picoseconds kSecond = 1'000'000'000'000;

/// "1.50 ms", "12 us", "3 ps": three significant digits, the unit that fits.
std::string time_text(Picoseconds time);

/// "1.50 MiB", "640 B".
std::string bytes_text(std::int64_t bytes);

/// "1,234,567".
std::string count_text(std::int64_t count);

constexpr double seconds(Picoseconds time) {
    return static_cast<double>(time) / static_cast<double>(kSecond);
}

/// Rounds a time in seconds, which is not negative, to picoseconds.
constexpr Picoseconds picoseconds(double seconds) {
    // NOLINTNEXTLINE(bugprone-incorrect-roundings): not negative; llround is no constant.
    return static_cast<Picoseconds>(seconds * static_cast<double>(kSecond) + 0.5);
}

}  // namespace lockstep
