#pragma once

#include <string>
#include <vector>

#include "lessons/assignments/mesh/grading/cases.hpp"

// Why a number is not what one device has: a sentence for the usual mistakes, or one that
// says where to look. Each goes by what all ranks have left, and by the mesh.

namespace lockstep::lessons::mesh {

/// Whether the two are equal, but for the rounding of sums.
constexpr double kBound = 1e-9;
bool is_near(double got, double expected, double bound = kBound);

/// `left` is what each rank left.
std::string loss_cause(const MeshCase& of, const OneDevice& alone,
                       const std::vector<double>& left);
std::string norm_cause(const MeshCase& of, const OneDevice& alone, const Layout& layout,
                       const std::vector<double>& left);

/// `stepped` is the gradient by which each rank's part changed.
std::string gradient_cause(const MeshCase& of, const OneDevice& alone,
                           const Layout& layout, const Parts& stepped);

}  // namespace lockstep::lessons::mesh
