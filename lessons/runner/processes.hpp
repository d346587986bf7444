#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/placement.hpp"
#include "lessons/runner/lesson_run.hpp"
#include "program/processes.hpp"

namespace lockstep::lessons {

/// Runs a lesson with --backend nccl, with one process per rank. If no launcher has
/// started the processes, this process starts a copy of itself for each rank. All
/// processes run the same steps, but only rank 0 shows and records them. The first
/// process that fails ends all processes with its exit status; rank 0 prints its failure.
int run_on_processes(const LessonEntry& lesson, const LessonOptions& options,
                     const std::optional<gpu::Placement>& placement,
                     const std::vector<std::string>& arguments);

}  // namespace lockstep::lessons
