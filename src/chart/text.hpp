#pragma once

#include <string>

#include "src/chart/chart.hpp"

namespace lockstep {

struct TextStyle {
    int width = 80;        ///< columns; at least 40 are used
    bool colour = false;   ///< ANSI colours, of 256
    std::string drawn_by;  ///< recommended command that draws all boxes; may be empty
};

/// Draws the chart as text: a line for each row with time to the right, a scale below,
/// and a legend of the letters. A box is a letter, its number if it fits, and a fill, so
/// kinds of boxes differ even without colour. Lost idle time is hatched. All panels share
/// one scale of time. If a panel has no rows, its strips are drawn, with a digit in each
/// column. Small rows are left out. Groups after the first 16 are counted, not drawn.
std::string chart_text(const Chart& chart, const TextStyle& style);

}  // namespace lockstep
