#pragma once

#include <string>

#include "lessons/grader/judge.hpp"
#include "src/pipeline/schedule.hpp"

namespace lockstep::lessons {

/// A schedule that a task was asked for: one chunk a stage, part s of the model on stage
/// s. The task has left it as text, made twice (leave_schedule.hpp).
struct AskedSchedule {
    std::string name;  ///< the case's, for sentences
    int stages = 1;
    int micro_batches = 1;
};

/// Reads it and asks for its sizes and parts. Sentences about it name stage and
/// instruction, not lines that nobody has seen. What is in it is not looked at yet.
Schedule left_schedule(Judge& judge, const TaskResult& result,
                       const AskedSchedule& asked);

/// Asks whether both texts are the same.
void ask_made_alike(Judge& judge, const TaskResult& result, const AskedSchedule& asked);

}  // namespace lockstep::lessons
