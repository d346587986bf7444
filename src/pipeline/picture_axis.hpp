#pragma once

#include <string>
#include <vector>

#include "src/core/units.hpp"

namespace lockstep {

/// A time on a picture's axis.
struct AxisTick {
    Picoseconds time = 0;
    std::string label;
};

/// Times from 0 to `end` that are round in a unit of `per_unit` whole
/// numbers, at most `most` of them behind the first.
std::vector<AxisTick> axis_ticks(Picoseconds end, double per_unit,
                                 int most);

/// Characters of its longest label, about.
int axis_label_size(Picoseconds end, double per_unit);

}  // namespace lockstep
