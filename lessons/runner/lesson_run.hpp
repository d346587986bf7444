#pragma once

#include <functional>
#include <vector>

#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// Asked once the steps are known: may change them, or run them and give false, which
/// ends the lesson.
using Direction = std::function<bool(std::vector<Step>& steps)>;

/// Runs the steps of a lesson, as its options ask; returns the exit status.
int run_steps(const LessonEntry& lesson, const LessonOptions& options,
              const Direction& direction);

}  // namespace lockstep::lessons
