#pragma once

#include <vector>

#include "src/core/units.hpp"
#include "src/pipeline/schedule.hpp"
#include "src/pipeline/times.hpp"

namespace lockstep {

struct TimeSpan {
    Picoseconds start = 0;
    Picoseconds end = 0;
    bool operator==(const TimeSpan&) const = default;
};

struct StageTiming {
    /// From the start of its first computation to the end of its last computation or
    /// message.
    TimeSpan span;
    Picoseconds busy = 0;  ///< computes, or updates weights

    Picoseconds idle() const { return span.end - span.start - busy; }
};

/// When every instruction begins and ends. Time 0 is when the first stage may begin.
struct Timing {
    std::vector<std::vector<TimeSpan>> spans;  ///< as in schedule.work
    std::vector<StageTiming> stages;
    Picoseconds makespan = 0;  ///< until the last stage's end

    const TimeSpan& span(Place place) const { return spans[place.stage][place.position]; }
    bool takes_time(Place place) const { return span(place).end > span(place).start; }

    // The bubble belongs to the stage that takes longest, as in papers. Each stage's time
    // is measured from its own first instruction to its own end: if several steps follow
    // one another, the next step's first forwards fill the idle time before and after.

    Picoseconds longest = 0;  ///< the longest of the stages' spans
    Picoseconds ideal = 0;    ///< the busy time of the busiest stage
    Picoseconds bubble() const { return longest - ideal; }
    /// The bubble divided by `longest`, as in GPipe and Chimera; 0 if nothing takes time.
    double bubble_over_total() const;
    /// The bubble divided by `ideal`, as in Narayanan et al. 2021 (SC21).
    double bubble_over_ideal() const;
    /// Returns the fraction of the makespan in which stages are busy, on average.
    double utilisation() const;

    /// For each instruction, the instruction that it waited for last (for its end, or for
    /// the arrival of its data). None if it began at time 0.
    std::vector<std::vector<Place>> causes;
    /// Returns the cause of an instruction, but skips causes that take no time.
    Place begins_after(Place place) const;

    /// The chain of instructions that sets the makespan: each begins when the one before
    /// it ends (or its message arrives). Instructions that take no time are left out.
    std::vector<Place> critical_path;
};

/// Times a schedule exactly.
///
/// An instruction begins when its data has arrived and its stage's previous work is done.
/// Instructions that begin together begin when all of them can. If the schedule has no
/// messages, data arrives from another stage one message time after it was made, and
/// messages never wait for one another. If it has messages, a message begins when both
/// stages have reached it and all messages before it in both stages' queues are done;
/// only computations that need its data wait for it. The messages of a group run at the
/// same time, each for its own time; the group is done, and its data has arrived, when
/// its last message is done. A reduction begins when all stages that hold the part have
/// reached it, and takes the longest of their times; meanwhile they do nothing else.
///
/// Throws UsageError for times that do not fit the schedule (ScheduleTimes::require_fit),
/// and for a schedule with a problem (src/pipeline/validate.hpp). Takes time proportional
/// to the number of instructions.
Timing time_schedule(const Schedule& schedule, const ScheduleTimes& times);

}  // namespace lockstep
