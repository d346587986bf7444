#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/launcher/placement.hpp"
#include "program/options.hpp"
#include "sim/cluster.hpp"
#include "src/report/record.hpp"

namespace lockstep::programs {

/// The settings that every program understands.
const std::vector<Setting>& common_settings();

/// Returns what their values ask for.
RunSettings run_settings(const Settings& values);

/// Returns what the options ask of the simulator, for the backends sim and cuda. Throws
/// UsageError with the option's name if the cluster cannot be. It costs little, so it is
/// asked before a run begins.
sim::ClusterOptions cluster_options(const Options& options, int ranks, bool trace);

/// Makes the devices that a program runs on, as the options ask (backend, cluster, common
/// settings). `trace` keeps spans for a timeline.
std::unique_ptr<Cluster> make_cluster(const Options& options, int ranks,
                                      bool trace = false);

/// Returns this process's place among those that were started together, if the backend
/// that is asked for may need one. Then CUDA's and NCCL's environment is set, too.
std::optional<gpu::Placement> placement_for(const Options& asked);

/// Returns the options with the backend and the number of ranks that they come to on this
/// machine. `gpu` is nccl if there is a GPU for each rank that is asked for, or else for
/// the `default_ranks`, and if processes were started together; otherwise it is cuda.
/// With nccl there are as many ranks as `placement` says. If nobody started this process,
/// there are `ranks` of the options, or as many as the GPUs here suffice for. Throws
/// MissingError if the machine lacks what the backend needs.
Options resolved(Options options, int default_ranks,
                 const std::optional<gpu::Placement>& placement);

/// Says on standard error, once for all processes, what --backend gpu is here.
void say_backend(const std::string& program, const Options& asked, const Options& options,
                 const std::optional<gpu::Placement>& placement);

/// Returns what run.json says of a run with these options: the settings with the values
/// that are in force, of all that are `declared` beside the common ones, and the GPU.
RunOptions run_options(const std::string& program, const Options& options,
                       int default_ranks, const std::vector<Setting>& declared);

}  // namespace lockstep::programs
