#pragma once

#include <optional>
#include <string>

#include "src/chart/chart.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

struct SchedulePicture {
    std::string title;      ///< empty is none
    ScheduleMemory memory;  ///< what the memory strips count
    double ticks = 1;       ///< of the timing's whole numbers, in one unit shown
    /// This is drawn, as if it began at time 0; none is all.
    std::optional<TimeSpan> window = {};
};

/// The classic picture of a schedule as a chart (src/chart/chart.hpp): a row a stage, a
/// box for each computation with the number of its micro-batch, idle time hatched; below
/// it a lane of the messages that take time, if there are any. A second panel has a strip
/// for each stage of what it holds (src/pipeline/holdings.hpp). `timing` is the
/// schedule's; both must outlive the chart.
Chart schedule_chart(const Schedule& schedule, const Timing& timing,
                     const SchedulePicture& picture);

}  // namespace lockstep
