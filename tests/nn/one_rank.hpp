// A cluster of one rank, which has a host, and the memory that the rank held.
#pragma once

#include <cstdint>
#include <utility>

#include "sim/cluster.hpp"

namespace lockstep::nn_test {

/// Runs the program under the checker, which must find nothing.
inline RunReport run_one(const Program& program, bool numbers,
                         ClusterSpec spec = load_cluster("classroom")) {
    sim::ClusterOptions options;
    options.numbers = numbers;
    options.workers = 1;
    options.check = sim::CheckLevel::full;
    options.spec = std::move(spec);
    return sim::make_cluster(std::move(options))->run(program);
}

/// Runs the program with shapes only, to count time, bytes and flops.
inline RankReport figures_of(const Program& program,
                             ClusterSpec spec = load_cluster("classroom")) {
    return run_one(program, /*numbers=*/false, std::move(spec)).ranks[0];
}

/// Returns the maximum bytes of activations that were held at one time.
inline std::int64_t peak_of(const MemoryReport& memory) {
    return memory.peak_of(MemoryCategory::activations);
}

}  // namespace lockstep::nn_test
