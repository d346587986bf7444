#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "sim/cluster.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::test {

/// Ways to run a program that must not make a difference.
struct World {
    sim::ExecutorKind executor = sim::ExecutorKind::fibers;
    int workers = 1;
    std::optional<std::uint64_t> seed = std::nullopt;
    sim::CheckLevel check = sim::check_level_asked();
};

/// Fibers and threads, 1, 2 and 4 workers, ten seeds of the scheduling order.
std::vector<World> all_worlds();

sim::ClusterOptions options_of(const World& world, int ranks,
                               const std::string& spec = "classroom");
std::unique_ptr<Cluster> make_cluster_in(const World& world, int ranks,
                                         const std::string& spec = "classroom",
                                         bool trace = false);

/// The mistake that a program is found to make: the same in every world (checked), under
/// a cluster of `ranks`.
Diagnosis fault_of(int ranks, const Program& program);

}  // namespace lockstep::test
