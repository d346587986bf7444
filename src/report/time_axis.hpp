#pragma once

#include <cstdint>
#include <string>

#include "src/core/units.hpp"

namespace lockstep {

/// `value / unit` as an exact decimal number without trailing zeros; `value` is not
/// negative and `unit` is a power of ten.
std::string decimal_text(std::int64_t value, std::int64_t unit);

/// A scale of time from 0: ticks at multiples of `step`, a round number, labelled in
/// `unit`.
struct TimeAxis {
    Picoseconds end = 0;
    Picoseconds step = 1;
    Picoseconds unit = 1;
    const char* unit_name = "ps";

    /// At most `ticks` steps.
    static TimeAxis of(Picoseconds end, int ticks);

    std::string label(Picoseconds time) const { return decimal_text(time, unit); }
};

}  // namespace lockstep
