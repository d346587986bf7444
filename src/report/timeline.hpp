#pragma once

#include <string>
#include <utility>
#include <vector>

#include "src/run/run_report.hpp"

namespace lockstep {

struct TimelineOptions {
    int width = 80;       ///< columns of text, at least 40
    bool colour = false;  ///< ANSI colours
    std::string title;
};

/// The run as text: a line for each queue of each device that did something, time to the
/// right, how much of the time the queue was busy, a scale below, and what the letters
/// mean. Plain characters differ where colours do. Phases of the training step are boxes,
/// with the number of their micro-batch where it fits; so are operations outside any
/// phase. Ranks beyond the first 16 are counted, not drawn.
std::string timeline_text(const RunReport& report, const TimelineOptions& options);

/// The same as a standalone SVG: a row a queue, a box a span with its name where it fits,
/// tooltips with times and lines, arrows for messages, a memory strip under each device.
/// Colours are distinguishable by the colour-blind (Okabe and Ito). Its size is bounded:
/// spans too narrow to be seen are merged, and ranks beyond the first 64 are counted, not
/// drawn.
std::string timeline_svg(const RunReport& report, const std::string& title);

/// Several runs below one another on one scale of time, so that they can be compared,
/// except that a run that is too short for it gets its own. Those that were not traced
/// are left out.
std::string timeline_svg(const std::vector<std::pair<std::string, RunReport>>& runs);

}  // namespace lockstep
