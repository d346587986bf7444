#pragma once

#include <memory>
#include <string>
#include <vector>

#include "lessons/07_ring_self_attention/attention_problem.hpp"
#include "lessons/07_ring_self_attention/gpt_context.hpp"
#include "lessons/runner/lesson.hpp"
#include "lessons/runner/rounding.hpp"

namespace lockstep::lessons {

/// What the lesson's experiments share: those about methods and what they send are in
/// lesson.cpp, those about long sequences in long_context.cpp.
struct RingLesson final : Lesson {
    /// Throws UsageError if the options ask for what cannot be.
    RingLesson(const LessonOptions& options, Record& record);

    /// Stored one behind the other: scores, weights and output, their three gradients,
    /// and sums over the devices, forward and backward.
    double bound() const {
        return RoundingBound{2e-5, 1e-12}.of(options().dtype, 6 + 2 * ranks);
    }
    /// A problem of a size that is trained in earnest, in 16 bits, for shapes only.
    AttentionProblem large() const;

    int ranks;
    std::shared_ptr<const GptTask> task;
    ContextMethod method;
    TokenOrder order;
};

void memory(RingLesson& lesson, Findings& found);
void causal(RingLesson& lesson, Findings& found);
void overlap(RingLesson& lesson, Findings& found);
void train(RingLesson& lesson, Findings& found);


/// How a page calls a method: "ring_attention".
std::string key_of(ContextMethod method);

}  // namespace lockstep::lessons
