#pragma once

#include <string>

#include "lessons/grader/judge.hpp"

// These judge what stages keep, and what is chosen by it: a10.2 to a10.4.

namespace lockstep::lessons::two_buffers {

/// Drawn anew for each grading.
inline int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

/// Each version of a stage's weights is made and dropped where it must be.
void judge_kept(Judge& judge);
/// The bytes that each stage holds at most.
void judge_bytes(Judge& judge);
/// A choice that the setting allows, and the fastest of them.
void judge_allowed(Judge& judge);
void judge_fastest(Judge& judge);

}  // namespace lockstep::lessons::two_buffers
