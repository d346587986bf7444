// A cluster of one rank, which has a host; and what it has held.
#pragma once

#include <cstdint>
#include <utility>

#include "sim/cluster.hpp"

namespace lockstep::nn_test {

/// Runs it under the checker, which is to have nothing to say.
inline RunReport run_one(const Program& program, bool numbers,
                         ClusterSpec spec = load_cluster("classroom")) {
    sim::ClusterOptions options;
    options.numbers = numbers;
    options.workers = 1;
    options.check = sim::CheckLevel::full;
    options.spec = std::move(spec);
    return sim::make_cluster(std::move(options))->run(program);
}

/// Runs it for time, bytes and flops.
inline RankReport figures_of(const Program& program,
                             ClusterSpec spec = load_cluster("classroom")) {
    return run_one(program, /*numbers=*/false, std::move(spec)).ranks[0];
}

/// The most that was held of activations at a time.
inline std::int64_t peak_of(const MemoryReport& memory) {
    return memory.peak_of(MemoryCategory::activations);
}

}  // namespace lockstep::nn_test
