#pragma once

#include <string>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/known_order.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

/// The schedule as load_schedule() reads it, each stage's list on a line.
std::string schedule_json(const Schedule& schedule);

/// Says how timing_json() writes times and memory.
struct TimingJsonOptions {
    ScheduleTimes times;    ///< those that were timed
    double ticks = 1;       ///< of the timing's whole numbers, in one unit shown
    ScheduleMemory memory;  ///< what peak memory counts
    const PeriodTiming* period = nullptr;  ///< to be written beside; null if none
    /// Other orders of the same work, to be written beside; null if none.
    const std::vector<KnownOrder>* known = nullptr;
    bool spans = false;  ///< when each instruction begins and ends
};

/// All that is known of a schedule's times as one JSON document, which load_schedule()
/// reads as well; the manual's page on schedules lists its keys. Times by stage, and
/// those that have more than nine decimals, are not read back.
std::string timing_json(const Schedule& schedule, const Timing& timing,
                        const TimingJsonOptions& options);

/// How time_schedule() charges this schedule's communication, and where
/// its times begin: a sentence or two each.
std::string communication_text(const Schedule& schedule);
std::string time_origin_text();

}  // namespace lockstep
