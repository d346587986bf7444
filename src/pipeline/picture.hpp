#pragma once

#include <optional>
#include <string>

#include "src/chart/chart.hpp"
#include "src/pipeline/holdings.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

struct SchedulePicture {
    std::string title;      ///< empty is none
    ScheduleMemory memory;  ///< how much each chunk takes, for the memory strips
    double ticks = 1;       ///< ticks in one unit of the picture
    /// Only this window of time is drawn, as if it began at 0; without it, all is drawn.
    std::optional<TimeSpan> window = {};
};

/// Makes the usual picture of a schedule as a chart (src/chart/chart.hpp). Each stage has
/// a row with a box for each computation, labelled with its micro-batch; idle time is
/// hatched. Below the row is a lane with the messages that take time, if there are any. A
/// second panel has a strip for each stage with what the stage holds
/// (src/pipeline/holdings.hpp). `timing` is the schedule's; both must outlive the chart.
Chart schedule_chart(const Schedule& schedule, const Timing& timing,
                     const SchedulePicture& picture);

}  // namespace lockstep
