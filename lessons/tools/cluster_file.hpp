#pragma once

#include <string>

#include "src/cost/cluster_spec.hpp"

namespace lockstep::lessons {

/// Returns the whole description as a JSON file, from which load_cluster reads the same
/// cluster.
std::string cluster_text(const ClusterSpec& spec);

}  // namespace lockstep::lessons
