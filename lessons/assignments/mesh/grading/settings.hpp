#pragma once

#include <string>
#include <vector>

#include "lessons/assignments/mesh/grading/given.hpp"
#include "src/comm/rank.hpp"
#include "src/run/run_report.hpp"

// a11.2: the settings for which a mesh is chosen, and the time of a step on each mesh.

namespace lockstep::lessons::mesh {

/// The three kinds of settings.
enum class Kind { wide, nodes, context };
std::string name_of(Kind kind);

struct NamedSetting {
    std::string name;
    Setting setting;
};

/// Drawn changes of a setting, so that no program can know the setting beforehand. The
/// changes are small: meshes that are good for the setting remain good.
struct Varied {
    double network = 1;           ///< factor of bytes per second between nodes: 1 to 1.3
    std::int64_t vocabulary = 0;  ///< added entries: 0 to 2048
};

/// Returns all variants of a setting. One of them is drawn for each grading.
std::vector<NamedSetting> variants_of(Kind kind, const Varied& varied);

/// Returns the job of one step of a setting, in bf16, for a shapes-only run.
GivenJob step_of(const Setting& setting, const Axes& axes);

/// Returns all meshes on which each shard has the same size, in all orders of the axes.
std::vector<Axes> possible_meshes(const Setting& setting);

/// Runs a program on the setting's devices, by shapes only, and returns the report.
RunReport cost_of(const Setting& setting, const Program& program);

/// A mesh, and the report of a step of the library's own program on it.
struct Tried {
    Axes axes;
    RunReport report;
};
/// Returns all meshes on which the library's program fits into the devices' memory, the
/// fastest first. That program shards the optimizer's state over dp and cp.
std::vector<Tried> fitting_meshes(const Setting& setting);

}  // namespace lockstep::lessons::mesh
