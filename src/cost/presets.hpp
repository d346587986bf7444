#pragma once

#include <vector>

#include "src/cost/cluster_spec.hpp"

namespace lockstep {

/// The clusters that are known by name, each with the source of its figures.
const std::vector<ClusterSpec>& cluster_presets();

}  // namespace lockstep
