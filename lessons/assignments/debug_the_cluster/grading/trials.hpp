#pragma once

#include <vector>

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

// The runs of each of the six programs: sizes that ranks divide and do not divide, one
// rank, and other numbers of ranks; drawn anew for each grading.

std::vector<TaskRun> filter_runs(const Judge& judge);
std::vector<TaskRun> pipeline_runs(const Judge& judge);
std::vector<TaskRun> prefetch_runs(const Judge& judge);
std::vector<TaskRun> evaluate_runs(const Judge& judge);
std::vector<TaskRun> clip_runs(const Judge& judge);
std::vector<TaskRun> accumulate_runs(const Judge& judge);

/// Returns a run of all six on so many ranks, one after another.
TaskRun run_of_all(const Judge& judge, int ranks);

}  // namespace lockstep::lessons
