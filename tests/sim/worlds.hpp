#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::test {

/// A way to run a program. The result must be the same in every world.
struct World {
    sim::ExecutorKind executor = sim::ExecutorKind::fibers;
    int workers = 1;
    std::optional<std::uint64_t> seed = std::nullopt;
    sim::CheckLevel check = sim::check_level_asked();
};

/// Fibers and threads; 1, 2 and 4 workers; ten seeds of the scheduling order.
std::vector<World> all_worlds();

sim::ClusterOptions options_of(const World& world, int ranks,
                               const std::string& spec = "classroom");
std::unique_ptr<Cluster> make_cluster_in(const World& world, int ranks,
                                         const std::string& spec = "classroom",
                                         bool trace = false);

/// Returns the mistake that is found in a program with `ranks` ranks. Checks that every
/// world finds the same mistake.
Diagnosis fault_of(int ranks, const Program& program);

}  // namespace lockstep::test
