#pragma once

#include <string>

#include "src/chart/chart.hpp"

namespace lockstep {

struct TextStyle {
    int width = 80;        ///< columns; at least 40 are used
    bool colour = false;   ///< ANSI colours, of 256
    std::string drawn_by;  ///< what draws all if text is too narrow; empty to say nothing
};

/// Draws the chart as text: a line for each row, time to the right, a scale below, and
/// what the letters mean. A box is a letter, its number if it fits, and a fill;
/// characters differ as colours do. Idle time that is lost is hatched. All panels have
/// one scale of time. A panel's strips are drawn, a digit a column, if it has no rows.
/// Small rows are left out; groups beyond the first 16 are counted, not drawn.
std::string chart_text(const Chart& chart, const TextStyle& style);

}  // namespace lockstep
