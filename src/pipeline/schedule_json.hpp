#pragma once

#include <string>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/known_order.hpp"
#include "src/pipeline/period.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

/// Returns the schedule as JSON that load_schedule() reads, each stage's list on one
/// line.
std::string schedule_json(const Schedule& schedule);

/// How timing_json() writes times and memory.
struct TimingJsonOptions {
    ScheduleTimes times;                   ///< the times that the timing was made with
    double ticks = 1;                      ///< ticks in one unit of the output
    ScheduleMemory memory;                 ///< what peak memory counts
    const PeriodTiming* period = nullptr;  ///< also written; null if none
    /// Other orders of the same work, also written; null if none.
    const std::vector<KnownOrder>* known = nullptr;
    bool spans = false;  ///< also write when each instruction begins and ends
};

/// Returns all that is known of a schedule's times as one JSON document; the manual's
/// page on schedules lists its keys. load_schedule() reads this document, too, except
/// times by stage and times with more than nine decimals.
std::string timing_json(const Schedule& schedule, const Timing& timing,
                        const TimingJsonOptions& options);

/// Returns one or two sentences: how time_schedule() counts this schedule's
/// communication, and where the schedule's times begin.
std::string communication_text(const Schedule& schedule);
std::string time_origin_text();

}  // namespace lockstep
