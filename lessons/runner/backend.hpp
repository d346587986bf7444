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
/// machine: `gpu` is nccl where there is a GPU for each of the ranks asked for, else of
/// the lesson's `default_ranks`, or where processes were started together, else cuda;
/// with nccl there are as many ranks as `placement` says, or, where nobody started this
/// process, `ranks` of the options or what the GPUs here suffice for. Throws UsageError
/// for a wrong value of any common setting, also of one that this backend does not read,
/// and for a file that the processes of nccl could not all read; MissingError where the
/// machine lacks what the backend needs.
LessonOptions resolved(LessonOptions options, int default_ranks,
                       const std::optional<gpu::Placement>& placement);

/// Whether --set nccl=shared allows several ranks on one GPU.
bool shares_gpu(const LessonOptions& options);
bool uses_tf32(const LessonOptions& options);
/// --set timeout: how long a process may go without progress.
double timeout_seconds(const LessonOptions& options);
/// Whether --set trace=hta asks for one more trace a rank.
bool leaves_hta_traces(const LessonOptions& options);

/// Throws UsageError, "--text FILE: <reason> must be a regular file", where --text or
/// --data is a pipe or another stream, which can be read once only.
void require_regular_files(const LessonOptions& options, const std::string& reason);

}  // namespace lockstep::lessons
