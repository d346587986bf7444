#pragma once

#include "lessons/grader/judge.hpp"

namespace lockstep::lessons {

// What is asked of each mended program: values on every rank; what it sends, what it
// holds and how long it takes, beside the reference, where a wrong mend would do worse.

void judge_filter(Judge& judge);
void judge_pipeline(Judge& judge);
void judge_prefetch(Judge& judge);
void judge_evaluate(Judge& judge);
void judge_clip(Judge& judge);
void judge_accumulate(Judge& judge);

/// All six in one run: values.
void judge_all(Judge& judge);

}  // namespace lockstep::lessons
