#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/placement.hpp"
#include "lessons/runner/lesson.hpp"
#include "program/processes.hpp"

namespace lockstep::lessons {

/// Asked once the steps are known: may change them, or run them and give false, which
/// ends the lesson.
using Direction = std::function<bool(std::vector<Step>& steps)>;

/// Runs the steps of a lesson, as its options ask; returns the exit status.
int run_steps(const LessonEntry& lesson, const LessonOptions& options,
              const Direction& direction);

/// Runs a lesson with --backend nccl: one process a rank. If nobody started this
/// process as one of several, it starts a copy of itself for each rank. All processes run
/// the same steps, as rank 0 says, which alone shows and records them. The first failure
/// of any ends all, with its status; rank 0 says what it was.
int run_on_processes(const LessonEntry& lesson, const LessonOptions& options,
                     const std::optional<gpu::Placement>& placement,
                     const std::vector<std::string>& arguments);

}  // namespace lockstep::lessons
