#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lessons/page/document.hpp"
#include "src/chart/plot.hpp"
#include "src/comm/operation.hpp"
#include "src/cost/cluster_spec.hpp"

namespace lockstep::lessons {

// The output of `lockstep cluster`.

/// A collective of one size, as nccl-tests prints it.
struct TimedCollective {
    std::int64_t bytes = 0;
    Picoseconds time = 0;
    double bus_bandwidth = 0;  ///< bytes per second; 0 if it takes no time
    std::string algorithm;     ///< empty if the cluster lists none
};

/// A verb's times over a group, by size.
struct TimedVerb {
    Verb verb;
    std::vector<TimedCollective> sizes;
};

/// The collectives of the first `ranks` devices of a cluster.
struct TimedGroup {
    int ranks = 0;
    int nodes = 0;
    std::vector<TimedVerb> verbs;
};

struct ExaminedCluster {
    ClusterSpec spec;
    std::vector<TimedGroup> groups;
};

/// Times collectives from 1 KiB to 8 GiB over `ranks` devices; without `ranks`, over one
/// node and over two.
ExaminedCluster examined_cluster(ClusterSpec spec, std::optional<int> ranks = {});

/// Shows the figures, their source, and the bus bandwidths.
Document cluster_page(const ExaminedCluster& cluster);

/// The bus bandwidths by size: one picture for each group.
std::vector<Plot> bandwidth_plots(const ExaminedCluster& cluster);

/// Returns the bandwidths, with all sizes, as one JSON document.
std::string cluster_json(const ExaminedCluster& cluster);

}  // namespace lockstep::lessons
