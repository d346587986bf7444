#pragma once

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

// A run of each of the six programs. Values are drawn again for each grading.

TaskRun filter_run(const Judge& judge, int ranks, int steps);
TaskRun pipeline_run(const Judge& judge, int ranks, int micro_batches);
TaskRun prefetch_run(const Judge& judge, int ranks, int layers);
TaskRun evaluate_run(const Judge& judge, int ranks, int rows);
/// The norm is `percent` per cent of the bound.
TaskRun clip_run(const Judge& judge, int ranks, int percent);
TaskRun accumulate_run(const Judge& judge, int ranks, int micro_batches);

}  // namespace lockstep::lessons
