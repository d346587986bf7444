#pragma once

#include <functional>
#include <string>

#include "lessons/grader/judge.hpp"
#include "src/pipeline/schedule.hpp"

namespace lockstep::lessons {

// A task was asked for a schedule of one chunk a stage and has left it as text, made
// twice (leave_schedule.hpp). Here is what is asked of schedules, whatever their order
// is. A mistake that leaves the same order says why one is wrong.

/// The schedules that the student and the reference made of a run.
struct LeftSchedules {
    TaskRun run;
    Schedule left;  ///< the student's
    Schedule right;

    int number(const std::string& name) const {
        return static_cast<int>(run.ranks.front().numbers.at(name));
    }
    /// Returns whether backward is in halves, I and W.
    bool has_halves() const;
};

/// Reads both, and asks for the reference's sizes, parts and kinds of instructions.
/// Sentences about the student's name stage and instruction, not lines that nobody has
/// seen.
LeftSchedules left_schedules(Judge& judge, const TaskRun& run);

/// Returns F, B, I and W alone, without versions: other mistakes leave them as they are.
LeftSchedules order_alone(const LeftSchedules& made);

/// Returns what is said of a mistake whose schedule fits; empty if none does.
std::string mistaken_schedule(const Judge& judge, const LeftSchedules& made,
                              const std::function<bool(const Schedule&)>& fits);

/// Returns what is said of a mistake that leaves the same order, which is not the
/// reference's; empty if none does.
std::string cause_of_order(const Judge& judge, const LeftSchedules& made);

/// Asks for the same schedule when asked again.
void ask_made_alike(Judge& judge, const LeftSchedules& made);

/// Asks for a schedule without problems. The others below need one.
/// `counted` stands before what is wrong.
void ask_runnable(Judge& judge, const LeftSchedules& made,
                  const std::string& counted = "");

/// Asks each stage for as many micro-batches as the number "limit" of the run allows, or,
/// if there is none, as the reference has.
void ask_held(Judge& judge, const LeftSchedules& made);

/// Asks for at most so much time, if all kinds take 1: one micro-batch after another
/// holds little, too. For halves it is the time of the stage that takes longest.
void ask_overlap(Judge& judge, const LeftSchedules& made, Picoseconds most);

/// Asks for the reference's time, with forwards that are longer than backwards, and
/// shorter; for halves, which take the same time, for its bubble.
void ask_time(Judge& judge, const LeftSchedules& made);

}  // namespace lockstep::lessons
