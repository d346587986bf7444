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

/// Returns the values of the common settings, each in its field.
RunSettings run_settings(const Settings& values);

/// Returns the simulator's options, for the backends sim and cuda. Throws UsageError with
/// the option's name if such a cluster is impossible. The call is cheap, so programs make
/// it before a run begins.
sim::ClusterOptions cluster_options(const Options& options, int ranks, bool trace);

/// Makes the devices that a program runs on, as the options ask (backend, cluster, common
/// settings). `trace` keeps spans for a timeline.
std::unique_ptr<Cluster> make_cluster(const Options& options, int ranks,
                                      bool trace = false);

/// Returns this process's place among the processes that were started together, if there
/// is one and the requested backend may need it. If it returns a place, it also sets the
/// environment of CUDA and NCCL.
std::optional<gpu::Placement> placement_for(const Options& asked);

/// Returns the options, with the backend and the number of ranks replaced by what they
/// mean on this machine. `gpu` becomes nccl if there is a GPU for each rank, or if
/// several processes were started together; otherwise `gpu` becomes cuda. Without --ranks
/// the number of ranks is `default_ranks`. With nccl, `placement` gives the number of
/// ranks; without a placement, the default is at most the number of GPUs. Throws
/// MissingError if the machine lacks what the backend needs.
Options resolved(Options options, int default_ranks,
                 const std::optional<gpu::Placement>& placement);

/// Prints to standard error, once for all processes, what --backend gpu means here.
void say_backend(const std::string& program, const Options& asked, const Options& options,
                 const std::optional<gpu::Placement>& placement);

/// Returns what run.json records of these options: the values of all settings (the common
/// and the `declared` ones), and the GPU.
RunOptions run_options(const std::string& program, const Options& options,
                       int default_ranks, const std::vector<Setting>& declared);

}  // namespace lockstep::programs
