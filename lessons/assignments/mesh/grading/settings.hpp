#pragma once

#include <string>
#include <vector>

#include "lessons/assignments/mesh/grading/given.hpp"
#include "src/comm/rank.hpp"
#include "src/run/run_report.hpp"

// a11.2: the settings for which a mesh is chosen, and how good a choice is.

namespace lockstep::lessons::mesh {

/// The three kinds of settings.
enum class Kind { wide, nodes, context };
std::string name_of(Kind kind);

struct NamedSetting {
    std::string name;
    Setting setting;
};

/// Sizes that no program has seen. A mesh is about as good for these sizes as for sizes
/// near them.
struct Varied {
    double network = 1;           ///< factor of bytes per second between nodes: 1 to 1.3
    std::int64_t vocabulary = 0;  ///< more entries: 0 to 2048
};

/// Returns all variants of a setting. One of them is drawn for each grading.
std::vector<NamedSetting> variants_of(Kind kind, const Varied& varied);

/// Returns a step of a setting, by shapes only.
GivenJob step_of(const Setting& setting, const Axes& axes);

/// Returns all meshes that shard everything equally, in all orders of their axes.
std::vector<Axes> possible_meshes(const Setting& setting);

/// Runs a program on the setting's devices, by shapes only: time, bytes and memory.
RunReport cost_of(const Setting& setting, const Program& program);

/// A mesh, and the report of a step of the library's own program on it.
struct Tried {
    Axes axes;
    RunReport report;
};
/// Returns all meshes on which no device needs more memory than it has, the fastest
/// first. The library's program shards the optimizer's state over dp and cp.
std::vector<Tried> fitting_meshes(const Setting& setting);

}  // namespace lockstep::lessons::mesh
