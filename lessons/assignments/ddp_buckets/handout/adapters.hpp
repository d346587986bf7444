#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/module.hpp"

// All that tests and the grader call, and what they give. How your own functions are
// called is up to you: adapters.cpp calls them.

/// Some of one rank's rows of a step, which go through the network together.
struct MicroBatch {
    lockstep::Tensor x;        ///< (rows, features), f64; at least one row
    lockstep::Tensor targets;  ///< (rows), i32: of each row, its class
    /// Its rows, divided by the rows of all micro-batches of all ranks in the step: so
    /// much its own mean counts in the mean over all rows.
    double weight;
};
/// One rank's of a step. Ranks have more or fewer of them; one may have none.
using MicroBatches = std::vector<MicroBatch>;

/// The most bytes of a bucket.
struct BucketLimits {
    std::int64_t first_bytes;  ///< of the first bucket, which the last layers begin
    std::int64_t bytes;        ///< of every other one
};

namespace adapters {

std::vector<lockstep::Tensor> make_buckets(lockstep::Rank& rank,
                                           lockstep::Module& network,
                                           const BucketLimits& limits);
lockstep::Tensor batch_gradient(lockstep::Rank& rank, lockstep::Module& network,
                                const MicroBatches& micro_batches,
                                const BucketLimits& limits);
lockstep::Tensor train(lockstep::Rank& rank, lockstep::Module& network,
                       const MicroBatches& micro_batches, const BucketLimits& limits,
                       int steps, double learning_rate);

}  // namespace adapters
