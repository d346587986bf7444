#pragma once

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

// Each function returns a run of one program. Values are drawn again for each grading.

TaskRun filter_run(const Judge& judge, int ranks, int steps);
TaskRun pipeline_run(const Judge& judge, int ranks, int micro_batches);
TaskRun prefetch_run(const Judge& judge, int ranks, int layers);
TaskRun evaluate_run(const Judge& judge, int ranks, int rows);
/// The gradient's norm is `percent` per cent of the largest norm that is allowed.
TaskRun clip_run(const Judge& judge, int ranks, int percent);
TaskRun accumulate_run(const Judge& judge, int ranks, int micro_batches);

}  // namespace lockstep::lessons
