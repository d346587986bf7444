#pragma once

#include <string>
#include <vector>

#include "src/report/timeline_look.hpp"
#include "src/report/timeline_rows.hpp"

namespace lockstep {

/// The text in the look's colours, where colour is on.
std::string in_colour(const std::string& text, const SpanLook& look, bool colour);

/// What the letters of the rows mean, in lines of at most `width` columns.
std::string legend_text(const std::vector<TimelineRow>& rows, int width, bool colour);

}  // namespace lockstep
