#pragma once

#include <string>
#include <vector>

#include "lessons/assignments/mesh/grading/given.hpp"
#include "src/comm/rank.hpp"
#include "src/run/run_report.hpp"

// a11.2: what a mesh is chosen for, and how good a choice is.

namespace lockstep::lessons::mesh {

/// Which of the three settings.
enum class Kind { wide, nodes, context };
std::string name_of(Kind kind);

struct NamedSetting {
    std::string name;
    Setting setting;
};

/// Sizes that no program has seen, for which meshes are about as good and as bad as for
/// those around them.
struct Varied {
    double network = 1;           ///< times the bytes a second between nodes: 1 to 1.3
    std::int64_t vocabulary = 0;  ///< more entries: 0 to 2048
};

/// Returns all variants of a setting, of which one is drawn for each grading.
std::vector<NamedSetting> variants_of(Kind kind, const Varied& by);

/// A step of a setting, with shapes only.
GivenJob step_of(const Setting& setting, const Axes& axes);

/// All meshes that deal everything out equally, in all orders of their axes.
std::vector<Axes> possible_meshes(const Setting& setting);

/// Runs a program on the setting's devices, by shapes only: time, bytes and memory.
RunReport cost_of(const Setting& setting, const Program& program);

/// A mesh, and a step of the library's own program on it.
struct Tried {
    Axes axes;
    RunReport report;
};
/// All of them on which no device holds more than there is; the fastest is the first. The
/// library's program shares out the optimizer's state along dp and cp.
std::vector<Tried> fitting_meshes(const Setting& setting);

}  // namespace lockstep::lessons::mesh
