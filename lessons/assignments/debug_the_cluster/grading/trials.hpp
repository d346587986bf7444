#pragma once

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

// A run of each of the six programs, whose values are drawn anew for each grading.

TaskRun filter_run(const Judge& judge, int ranks, int steps);
TaskRun pipeline_run(const Judge& judge, int ranks, int micro_batches);
TaskRun prefetch_run(const Judge& judge, int ranks, int layers);
TaskRun evaluate_run(const Judge& judge, int ranks, int rows);
/// With a bound that the norm is `percent` of.
TaskRun clip_run(const Judge& judge, int ranks, int percent);
TaskRun accumulate_run(const Judge& judge, int ranks, int micro_batches);

}  // namespace lockstep::lessons
