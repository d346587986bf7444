#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "program/settings.hpp"
#include "sim/cluster.hpp"
#include "src/core/dtype.hpp"

namespace lockstep::gpu {
class Process;
}

namespace lockstep::programs {

/// The settings that every program understands; backend.cpp declares them.
struct RunSettings {
    int workers = 0;  ///< threads for long operations; 0 means one per core
    sim::ExecutorKind executor = sim::ExecutorKind::fibers;
    std::optional<std::uint64_t> schedule_seed;
    bool numbers = true;  ///< if false, only shapes are computed
    bool tf32 = false;
    bool sync = false;            ///< wait for each operation of the GPU
    double timeout_seconds = 60;  ///< how long a process may go without progress
    bool shares_gpu = false;      ///< several ranks of nccl may share one GPU
    bool hta_traces = false;      ///< the record has one more trace per rank
};

/// The options that lessons and users' own programs share.
struct Options {
    std::string backend = "sim";
    std::optional<int> ranks;
    DType dtype = DType::f32;
    std::uint64_t seed = 1;
    std::string cluster = "classroom";
    /// The value of --check. If none is given, virtual devices use LOCKSTEP_CHECK.
    std::optional<sim::CheckLevel> check;
    std::set<std::string> unchecked;              ///< classes that --check leaves out
    std::map<std::string, std::string> settings;  ///< --set KEY=VALUE, as given
    Settings values;                              ///< of all declared settings
    RunSettings run;
    std::optional<std::filesystem::path> out;
    /// With --backend nccl: this process; set when all processes have connected.
    gpu::Process* process = nullptr;

    /// Returns whether times come from the virtual clock, and so equal the formulas.
    /// Otherwise times are measured.
    bool has_virtual_time() const { return backend != "nccl"; }
    /// Returns false if --set numerics=off asks for shapes only.
    bool has_numbers() const { return run.numbers; }
    /// Returns which mistakes the run looks for.
    sim::CheckLevel check_level() const {
        if (backend == "nccl") return sim::CheckLevel::cheap;
        return check.value_or(sim::check_level_asked());
    }
};

}  // namespace lockstep::programs
