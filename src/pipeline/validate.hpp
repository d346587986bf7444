#pragma once

#include <optional>
#include <string>

#include "src/pipeline/schedule.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

/// Why a schedule cannot be run.
struct ScheduleProblem {
    /// One sentence that names stage, instruction, and what is wrong with
    /// it or what it waits for.
    std::string sentence;
    Place place;
    /// If nothing can run any more: the instructions that wait for one
    /// another, each for the next, the last for the first.
    std::vector<Place> cycle;
};

/// The first of these, or none if the schedule can run:
///
/// - the chunks are parts 0, 1, … of a model, none missing, none twice on a
///   stage; the kind, the micro-batch and the chunk of every instruction
///   exist; what begins together is a group of messages, or a forward and a
///   backward; copies of a middle that repeats differ by its micro-batches and
///   updates alone;
/// - every part of the model computes every micro-batch forward once and
///   backward once, whole or in halves, on one stage, in this order;
/// - there are no messages at all, or one send and one receive for all data
///   that crosses stages, after it is made and before it is used, and no
///   others;
/// - backward reads the weights that its forward read, and no instruction
///   those of an optimizer step that is still to come;
/// - gradients are reduced, and weights updated, only after a backward since
///   the last time, and stages that hold the same part reduce it equally often
///   and update it alike, after a reduction since the last backward;
/// - followed in order by all stages (src/pipeline/walk.hpp), it comes to
///   its end.
std::optional<ScheduleProblem> find_problem(const Schedule& schedule);

/// A schedule's problem, or when everything in it happens.
struct Examination {
    std::optional<ScheduleProblem> problem;
    Timing timing;  ///< if there is no problem
};

/// Does both in one go. The times must fit the schedule.
Examination examine_schedule(const Schedule& schedule, const ScheduleTimes& times);

/// The first of the first kind alone: sizes, parts, kinds, micro-batches
/// and chunks that are there.
std::optional<ScheduleProblem> find_bad_number(const Schedule& schedule);

/// Throws UsageError with the problem's sentence.
void require_valid(const Schedule& schedule);

}  // namespace lockstep
