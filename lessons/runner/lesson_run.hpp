#pragma once

#include <functional>
#include <vector>

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// Called once the steps are known. It may change the steps. Or it runs the steps and
/// returns false, which ends the lesson.
using Direction = std::function<bool(std::vector<Step>& steps)>;

/// Runs the steps of a lesson as its options say; returns the exit status.
int run_steps(const LessonEntry& lesson, const LessonOptions& options,
              const Direction& direction);

}  // namespace lockstep::lessons
