#pragma once

#include <string>

#include "lessons/grader/judge.hpp"

// Judges the versions that stages keep, and the choice by memory: a10.2 to a10.4.

namespace lockstep::lessons::two_buffers {

/// Draws a number again for each grading.
inline int drawn(const Judge& judge, const std::string& name, int low, int high) {
    return static_cast<int>(judge.draw(name, low, high));
}

/// Asks that each version of a stage's weights is made and dropped at the right place.
void judge_kept(Judge& judge);
/// Asks for the maximum number of bytes of each stage.
void judge_bytes(Judge& judge);
/// Ask for a choice that the setting allows, and for the fastest of these.
void judge_allowed(Judge& judge);
void judge_fastest(Judge& judge);

}  // namespace lockstep::lessons::two_buffers
