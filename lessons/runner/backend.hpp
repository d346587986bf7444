#pragma once

#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/placement.hpp"
#include "lessons/runner/lesson.hpp"
#include "sim/cluster.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

/// The settings that every lesson understands.
const std::vector<Setting>& common_settings();

/// Returns what their values ask for.
RunSettings run_settings(const Settings& values);

/// Returns what the options ask of the simulator, for the backends sim and cuda. Throws
/// UsageError with the option's name if the cluster cannot be. It costs little, so the
/// runner asks before a lesson begins.
sim::ClusterOptions cluster_options(const LessonOptions& options, int ranks, bool trace);

/// Returns the options with the backend and the number of ranks that they come to on this
/// machine. `gpu` is nccl if there is a GPU for each rank that is asked for, or else for
/// the lesson's `default_ranks`, and if processes were started together; otherwise it is
/// cuda. With nccl there are as many ranks as `placement` says. If nobody started this
/// process, there are `ranks` of the options, or as many as the GPUs here suffice for.
/// Throws UsageError for a file that the processes of nccl could not all read, and
/// MissingError if the machine lacks what the backend needs.
LessonOptions resolved(LessonOptions options, int default_ranks,
                       const std::optional<gpu::Placement>& placement);

/// Throws UsageError, "--text FILE: <reason> must be a regular file", if --text or
/// --data is a pipe or another stream, which can be read once only.
void require_regular_files(const LessonOptions& options, const std::string& reason);

}  // namespace lockstep::lessons
