#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/control.hpp"
#include "gpu/launcher/placement.hpp"
#include "lessons/runner/lesson.hpp"

namespace lockstep::lessons {

/// Asked once the steps are known: may change them, or run them and give false, which
/// ends the lesson.
using Direction = std::function<bool(std::vector<Step>& steps, Record& record)>;

/// Runs the steps of a lesson, as its options ask; returns the exit status.
int run_steps(const LessonEntry& lesson, const LessonOptions& options,
              const Direction& direction);

/// In a handler: tells the other processes of the exception.
gpu::Failure tell_failure(gpu::Control& control);

/// In a handler: the same, and gives the first failure of all, this process's or
/// another's. Rank 0 says it: see Control::claim_text.
gpu::Failure first_failure(gpu::Control& control);

/// Runs a lesson with --backend nccl: one process a rank. If nobody started this
/// process as one of several, it starts a copy of itself for each rank. All processes run
/// the same steps, as rank 0 says, which alone shows and records them. The first failure
/// of any ends all, with its status; rank 0 says what it was.
int run_on_processes(const LessonEntry& lesson, const LessonOptions& options,
                     const std::optional<gpu::Placement>& placement,
                     const std::vector<std::string>& arguments);

}  // namespace lockstep::lessons
