#pragma once

#include <string>
#include <vector>

#include "src/chart/chart.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// A run and what a picture calls it. The report must outlive the chart.
struct TitledRun {
    std::string title;
    const RunReport& report;
};

/// The run as a chart (src/chart/chart.hpp): a row for each queue of each device that did
/// something, a box a span, arrows for messages, and memory by category. Phases of the
/// training step have the number of their micro-batch. Devices that do exactly the same
/// at the same times are one group. More than 1,000 messages are counted, not drawn.
Chart timeline_chart(const RunReport& report, const std::string& title);

/// What devices hold over time, by category; nothing of what they do.
Chart memory_chart(const RunReport& report, const std::string& title);

/// Several runs below one another on one scale of time, so that they can be compared,
/// except that a run that is too short for it gets its own. Those that were not traced
/// are left out.
Chart timeline_chart(const std::vector<TitledRun>& runs);

}  // namespace lockstep
