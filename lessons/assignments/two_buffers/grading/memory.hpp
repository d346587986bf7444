#pragma once

#include <string>

#include "lessons/grader/judge.hpp"

// a10.2 to a10.4: the versions that stages keep, the bytes of stages, and the choice.

namespace lockstep::lessons::two_buffers {

/// Draws a number again for each grading.
inline int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

/// Judges where a stage's list makes and drops each version of the weights.
void judge_kept(Judge& judge);
/// Judges the maximum number of bytes of each stage.
void judge_bytes(Judge& judge);
/// These two functions judge whether the choice is allowed, and whether it is fastest.
void judge_allowed(Judge& judge);
void judge_fastest(Judge& judge);

}  // namespace lockstep::lessons::two_buffers
