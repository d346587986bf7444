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
    /// From its first computation to the end of its last, or of its last message.
    TimeSpan span;
    Picoseconds busy = 0;  ///< computing, and updating weights

    Picoseconds idle() const { return span.end - span.start - busy; }
};

/// When everything happens, from time 0, when the first stage may begin.
struct Timing {
    std::vector<std::vector<TimeSpan>> spans;  ///< of schedule.work
    std::vector<StageTiming> stages;
    Picoseconds makespan = 0;  ///< until the last stage's end

    const TimeSpan& span(Place place) const { return spans[place.stage][place.position]; }
    bool takes_time(Place place) const { return span(place).end > span(place).start; }

    // The bubble, of the stage that takes longest, as papers have it: each stage's time
    // is measured from its own first instruction to its own end, since with several steps
    // one after another the next step's first forwards fill what lies before and behind.

    Picoseconds longest = 0;  ///< of the stages' spans
    Picoseconds ideal = 0;    ///< what the busiest stage computes, and updates
    Picoseconds bubble() const { return longest - ideal; }
    /// As GPipe, Chimera and Zero Bubble divide it; 0 if nothing takes time.
    double bubble_over_total() const;
    /// As Narayanan et al. 2021 (SC21) divide it.
    double bubble_over_ideal() const;
    /// Returns the fraction of all stages' time until the makespan in which they compute.
    double utilisation() const;

    /// For each of schedule.work the instruction whose end, or whose data's arrival, let
    /// it begin; none if it began at time 0.
    std::vector<std::vector<Place>> causes;
    /// Returns the same, but passes over instructions that take no time.
    Place begins_after(Place place) const;

    /// Instructions one after another, each of which begins when the one before it ends
    /// (or its message arrives); the last ends last. What takes no time is left out.
    std::vector<Place> critical_path;
};

/// Times a schedule exactly.
///
/// Each instruction begins when the one before it on its stage is done and its data is
/// there. Those that begin together begin when all of them can. Without messages in the
/// schedule, data from another stage is there a message's time after it was made, and
/// messages never wait for one another. With them, a message begins when both stages'
/// programs have come to it and all in front of it in both stages' queues are done; it
/// holds up no computation but those that need it. Messages of a group go on at the same
/// time, each for its own time; the group is done, and its data there, when the last is.
/// A reduction begins when all stages that hold the part have come to it, and takes the
/// longest of their times; a stage does nothing else meanwhile.
///
/// Throws UsageError for times that do not fit the schedule (ScheduleTimes::require_fit),
/// or a schedule with a problem (src/pipeline/validate.hpp). Takes time proportional to
/// the instructions.
Timing time_schedule(const Schedule& schedule, const ScheduleTimes& times);

}  // namespace lockstep
