#pragma once

#include <string>

#include "src/cost/cluster_spec.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

/// Returns the whole description as a JSON file, from which load_cluster reads the same
/// cluster.
std::string cluster_text(const ClusterSpec& spec);

/// Returns the value of the file's key "error".
Json error_json(const ClusterSpec::FitError& error);

}  // namespace lockstep::lessons
