#pragma once

#include <string>
#include <vector>

#include "src/chart/chart.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// A run and its title in a picture. The report must outlive the chart.
struct TitledRun {
    std::string title;
    const RunReport& report;
};

/// Returns the run as a chart (src/chart/chart.hpp): for each device a row for each queue
/// that did something, a box for each span, arrows for messages, and memory by category.
/// Phases of the training step have the number of their micro-batch. Devices that do
/// exactly the same at the same times are one group. If there are more than 1,000
/// messages, they are counted, not drawn.
Chart timeline_chart(const RunReport& report, const std::string& title);

/// Returns a chart of the memory that devices hold over time, by category; operations are
/// not shown.
Chart memory_chart(const RunReport& report, const std::string& title);

/// Returns a chart of several runs, one below the other, on one scale of time, so that
/// they can be compared. A run that is too short for this scale gets its own scale. Runs
/// that were not traced are left out.
Chart timeline_chart(const std::vector<TitledRun>& runs);

}  // namespace lockstep
