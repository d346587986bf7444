#pragma once

#include <optional>
#include <string>

#include "src/pipeline/schedule.hpp"
#include "src/pipeline/timer.hpp"

namespace lockstep {

/// Why a schedule cannot be run.
struct ScheduleProblem {
    /// One sentence that names the stage and the instruction, and says what is wrong with
    /// it or what it waits for.
    std::string sentence;
    Place place;
    /// In a deadlock: the instructions that wait for one another. Each waits for the
    /// next, the last for the first.
    std::vector<Place> cycle;
};

/// Returns the first of these rules that the schedule breaks; none if it can run:
///
/// - the chunks are parts 0, 1, … of a model; none is missing, and none is twice on a
///   stage; the kind, the micro-batch and the chunk of every instruction exist;
///   instructions that begin together are a group of messages, or a forward and a
///   backward; copies of a repeated middle differ only by its micro-batches and updates;
/// - every part of the model runs every micro-batch once forward and then once backward
///   (whole or in halves), on one stage;
/// - there are no messages at all; or all data that crosses stages has one send and one
///   receive, after the data is made and before it is used, and no other message exists;
/// - backward reads the weights that its forward read, and no instruction reads the
///   weights of an optimizer step that is still to come;
/// - between two reductions of a chunk, and between two updates, there is a backward;
///   stages that hold the same part reduce it equally often, and update it at the same
///   points, with a reduction between the last backward and the update;
/// - if all stages follow the schedule (src/pipeline/walk.hpp), they reach its end.
std::optional<ScheduleProblem> find_problem(const Schedule& schedule);

/// A schedule's problem; if there is none, the times of everything in it.
struct Examination {
    std::optional<ScheduleProblem> problem;
    Timing timing;  ///< if there is no problem
};

/// Checks and times the schedule in one go. The times must fit the schedule.
Examination examine_schedule(const Schedule& schedule, const ScheduleTimes& times);

/// Checks only the first rule that find_problem() lists.
std::optional<ScheduleProblem> find_bad_number(const Schedule& schedule);

/// Throws UsageError with the problem's sentence.
void require_valid(const Schedule& schedule);

}  // namespace lockstep
