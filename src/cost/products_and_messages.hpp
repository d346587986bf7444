#pragma once

#include "src/cost/cluster_spec.hpp"

namespace lockstep {

/// A `classroom` cluster of one node in which only products and messages take time. So a
/// formula of flops and bytes gives the exact time.
inline ClusterSpec products_and_messages() {
    ClusterSpec spec = load_cluster("classroom");
    spec.launch_seconds = spec.memory_bytes_per_second = 0;
    spec.host_copy = {};
    spec.devices_per_node = 64;
    return spec;
}

}  // namespace lockstep
