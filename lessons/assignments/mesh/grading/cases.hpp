#pragma once

#include <map>
#include <string>
#include <vector>

#include "lessons/assignments/mesh/grading/given.hpp"
#include "src/core/part.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::lessons::mesh {

/// A job on a mesh.
struct MeshCase {
    Axes axes;
    GivenJob job;

    int ranks() const { return MeshShape(axes).ranks(); }
    int size(const std::string& axis) const { return MeshShape(axes).size(axis); }
    std::string name() const;
};

/// "dp 2 x tp 4": the axes that have several ranks, in their order.
std::string text_of(const Axes& axes);

/// Returns what the program is given on each rank.
Numbers given_numbers(const MeshCase& of);

/// What one device makes of a job: the library's own parts, and no mesh.
struct OneDevice {
    std::vector<double> of_sequences;  ///< the loss of each sequence of the first batch
    std::vector<double> losses;        ///< of each step
    std::vector<double> squares;
    std::map<std::string, HostTensor> before;     ///< values
    std::map<std::string, HostTensor> gradients;  ///< of the first step
    std::map<std::string, HostTensor> weights;    ///< in the end
};
/// Trains once, however often it is asked.
const OneDevice& alone_of(const GivenJob& job);

/// Which part of each parameter each rank of a mesh has.
struct Layout {
    std::vector<std::map<std::string, Part>> parts;  ///< of each rank
    bool is_shared_out(const std::string& name) const {
        return !holds_all(parts.front().at(name));
    }
};
Layout layout_of(const MeshCase& of);

/// Parameters' gradients, or parts of them, of each rank by name.
using Parts = std::vector<std::map<std::string, HostTensor>>;
/// What the first batch's backward leaves on each rank of the mesh, before anything is
/// added up. Sequences are dealt to ranks of dp in turn, or in stretches.
enum class Dealing { in_turn, in_stretches };
Parts terms_of(const MeshCase& of, Dealing dealing);
/// Returns the rank along dp that such a sequence is dealt to.
int dealt_to(Dealing dealing, int sequence, int sequences, int ranks);

/// One step of the library's own program on the mesh, which shares out the optimizer's
/// state along dp and cp; shapes only, as many sequences on each rank. Throws UsageError
/// where the mesh cannot be.
RunReport run_library(const MeshCase& of, const ClusterSpec& cluster);

}  // namespace lockstep::lessons::mesh
