#pragma once

#include <functional>
#include <vector>

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// Is called when the steps are known. It may change the steps and return true, or run
/// the steps itself and return false, which ends the lesson.
using Direction = std::function<bool(std::vector<Step>& steps)>;

/// Runs the steps of a lesson as its options say; returns the exit status.
int run_steps(const LessonEntry& lesson, const LessonOptions& options,
              const Direction& direction);

}  // namespace lockstep::lessons
