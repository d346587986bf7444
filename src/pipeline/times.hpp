#pragma once

#include <map>
#include <utility>
#include <vector>

#include "src/core/units.hpp"
#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// The durations of instructions, for one chunk of a stage or for a part of the model:
/// whole numbers of any unit, not negative.
struct Durations {
    Picoseconds forward = 1;
    Picoseconds backward_input = 1;
    Picoseconds backward_weight = 1;
    Picoseconds message = 0;    ///< sent by the stage, or between the part and the next
    Picoseconds recompute = 0;  ///< forward once more, before a backward
    Picoseconds reduce = 0;     ///< of gradients over all stages that share them
    Picoseconds update = 0;     ///< of weights
    /// A forward and a backward that overlap; if their parts differ, the longer time. -1
    /// stands for the sum of both.
    Picoseconds overlapped = -1;

    /// A whole backward takes the time of both halves. The time of a whole backward, and
    /// of a first half, includes recomputation.
    Picoseconds of_kind(InstructionKind kind) const;
};

/// How long everything in a schedule takes.
struct ScheduleTimes {
    ScheduleTimes() = default;
    /// One entry for all stages, or one for each stage.
    ScheduleTimes(std::vector<Durations> by_stage) : each(std::move(by_stage)) {}
    ScheduleTimes(std::initializer_list<Durations> by_stage) : each(by_stage) {}

    /// One entry for all, or one for each stage, or one for each part of the model.
    std::vector<Durations> each{{}};
    bool by_part = false;  ///< `each` has an entry for each part
    /// Slow links: messages between two stages (the lower first) take this time.
    std::map<std::pair<int, int>, Picoseconds> links;

    const Durations& of_place(const Schedule& schedule, Place place) const {
        if (each.size() == 1) return each.front();
        return each[by_part ? schedule.part(place) : place.stage];
    }
    /// Returns the time of an instruction, or of the pair that begins with it.
    Picoseconds of_work(const Schedule& schedule, Positions together, int stage) const;
    /// Returns the time of a message between the parts of two places, from the first to
    /// the second.
    Picoseconds of_message(const Schedule& schedule, Place from, Place to) const;

    /// Throws UsageError unless there is one entry, or one for each stage or part. Also
    /// throws it for a negative time, for a link of stages that do not exist, and if the
    /// sum over the schedule does not fit 62 bits.
    void require_fit(const Schedule& schedule) const;
};

}  // namespace lockstep
