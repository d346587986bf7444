#pragma once

#include <functional>
#include <string>

#include "lessons/grader/judge.hpp"
#include "src/pipeline/schedule.hpp"

namespace lockstep::lessons {

// These functions judge a task that has output a schedule with one chunk on each stage,
// twice, as text (leave_schedule.hpp). The order may differ from the reference's. If a
// schedule fails, a known mistake that outputs the same order explains why.

/// The schedules that the student and the reference made of a run.
struct LeftSchedules {
    TaskRun run;
    Schedule left;  ///< the student's
    Schedule right;

    int number(const std::string& name) const {
        return static_cast<int>(run.ranks.front().numbers.at(name));
    }
    /// Returns whether backward is in two halves, I and W.
    bool has_halves() const;
};

/// Reads both schedules. Judges the sizes, parts and kinds of instructions of the
/// student's schedule. Drops line numbers, because students have not seen the text.
LeftSchedules left_schedules(Judge& judge, const TaskRun& run);

/// Returns both schedules with only F, B, I and W, and without versions of weights.
LeftSchedules order_alone(const LeftSchedules& made);

/// Returns the sentence of a mistake for whose schedule `fits` is true; empty if there is
/// no such mistake.
std::string mistaken_schedule(const Judge& judge, const LeftSchedules& made,
                              const std::function<bool(const Schedule&)>& fits);

/// Returns the sentence for a mistake that outputs the same order, if this order is not
/// the reference's. Returns nothing if no mistake fits.
std::string cause_of_order(const Judge& judge, const LeftSchedules& made);

/// Judges whether the task's two schedules are the same.
void ask_made_alike(Judge& judge, const LeftSchedules& made);

/// Judges whether the schedule can run. The functions below need one that can run.
/// `counted` is put before the sentence about a problem.
void ask_runnable(Judge& judge, const LeftSchedules& made,
                  const std::string& counted = "");

/// Judges how many micro-batches each stage holds: at most the run's number "limit", or
/// as many as in the reference if the run has no such number.
void ask_held(Judge& judge, const LeftSchedules& made);

/// Judges a time if F takes 1 and B takes 2, or F, I and W take 1 each: the schedule or,
/// with halves, its slowest stage must take at most `most`. So a schedule with one
/// micro-batch after another, which needs little memory, fails.
void ask_overlap(Judge& judge, const LeftSchedules& made, Picoseconds most);

/// Judges whether the time is the reference's, both with forwards shorter than backwards
/// and with longer ones. With halves, judges the bubble if F, I and W take 1.
void ask_time(Judge& judge, const LeftSchedules& made);

}  // namespace lockstep::lessons
