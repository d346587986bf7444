#pragma once

#include "lessons/grader/judge.hpp"
#include "src/pipeline/schedule.hpp"

namespace lockstep::lessons {

// A task was asked for a schedule of one chunk a stage and has left it as text, made
// twice (leave_schedule.hpp).

/// Reads the student's and asks for the sizes and the parts of the reference's. Sentences
/// about it name stage and instruction, not lines that nobody has seen. What is in it is
/// not looked at yet.
Schedule left_schedule(Judge& judge, const TaskRun& run);

/// Returns the reference's.
Schedule right_schedule(const Judge& judge, const TaskRun& run);

/// Reads one that a mistake has left.
Schedule read_left(const TaskResult& result);

/// Asks whether both texts are the same.
void ask_made_alike(Judge& judge, const TaskRun& run);

}  // namespace lockstep::lessons
