#pragma once

#include <optional>
#include <string>

#include "gpu/launcher/placement.hpp"
#include "lessons/runner/lesson.hpp"
#include "sim/cluster.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

/// What the options ask of the simulator, for the backends sim and cuda. Throws
/// UsageError with the option's name where one cannot be, MissingError where the machine
/// has no GPU for cuda. Costs little, so the runner asks before a lesson begins.
sim::ClusterOptions cluster_options(const LessonOptions& options, int ranks, bool trace);

/// The options with the backend and the number of ranks that they come to on this
/// machine: `gpu` is nccl where there is a GPU for each rank, or processes were started,
/// else cuda; with nccl there are as many ranks as `placement` says, or, where nobody
/// started this process as one of several, `ranks` of the options or what the GPUs here
/// suffice for.
LessonOptions resolved(LessonOptions options, int default_ranks,
                       const std::optional<gpu::Placement>& placement);

/// Whether --set nccl=shared allows several ranks on one GPU.
bool shares_gpu(const LessonOptions& options);
bool uses_tf32(const LessonOptions& options);
/// --set timeout: how long a process may go without progress.
double timeout_seconds(const LessonOptions& options);

}  // namespace lockstep::lessons
