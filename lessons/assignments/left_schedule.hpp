#pragma once

#include <functional>
#include <string>

#include "lessons/grader/judge.hpp"
#include "src/pipeline/schedule.hpp"

namespace lockstep::lessons {

// A task was asked for a schedule with one chunk on each stage, and has output it as
// text, twice (leave_schedule.hpp). These questions fit schedules in any order. If an
// order is wrong, a mistake that leaves the same order explains it.

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

/// Reads both schedules, and asks for the reference's sizes, parts and kinds of
/// instructions. Later sentences name a stage and an instruction of the student's
/// schedule, but no lines of the text, which students have not seen.
LeftSchedules left_schedules(Judge& judge, const TaskRun& run);

/// Returns only F, B, I and W, without versions, so that other mistakes do not matter.
LeftSchedules order_alone(const LeftSchedules& made);

/// Returns the sentence for a mistake whose schedule fits, or nothing if none fits.
std::string mistaken_schedule(const Judge& judge, const LeftSchedules& made,
                              const std::function<bool(const Schedule&)>& fits);

/// Returns the sentence for a mistake that leaves the same order, if the order is not the
/// reference's. Returns nothing if no mistake fits.
std::string cause_of_order(const Judge& judge, const LeftSchedules& made);

/// Asks that the task makes the same schedule twice.
void ask_made_alike(Judge& judge, const LeftSchedules& made);

/// Asks for a schedule without problems. The questions below need one. `counted` is put
/// before the problem's sentence.
void ask_runnable(Judge& judge, const LeftSchedules& made,
                  const std::string& counted = "");

/// Asks that each stage holds at most "limit" micro-batches if the run has that number.
/// Otherwise the limit is the reference's number.
void ask_held(Judge& judge, const LeftSchedules& made);

/// Asks for a time of at most `most` if each kind takes 1. This fails one micro-batch
/// after another, which holds little. For halves, asks for the slowest stage's time.
void ask_overlap(Judge& judge, const LeftSchedules& made, Picoseconds most);

/// Asks for the reference's time, with forwards longer than backwards, then shorter. For
/// halves, which take equally long, asks for the reference's bubble.
void ask_time(Judge& judge, const LeftSchedules& made);

}  // namespace lockstep::lessons
