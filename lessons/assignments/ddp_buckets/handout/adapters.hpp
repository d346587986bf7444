#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"
#include "src/nn/module.hpp"

// Tests and the grader call only these functions, with these types. Your own functions
// may have any signature: adapters.cpp calls them.

/// Some of a rank's rows in a step. They go through the network together.
struct MicroBatch {
    lockstep::Tensor x;        ///< (rows, features), f64; at least one row
    lockstep::Tensor targets;  ///< (rows), i32: the class of each row
    /// The number of rows, divided by the number of all ranks' rows in the step: the
    /// weight of the micro-batch's mean in the mean over all rows.
    double weight;
};
/// A rank's micro-batches in a step. Ranks may have different numbers of them, or none.
using MicroBatches = std::vector<MicroBatch>;

/// The maximum number of bytes of a bucket. The first bucket has the last parameters.
struct BucketLimits {
    std::int64_t first_bytes;  ///< maximum for the first bucket
    std::int64_t bytes;        ///< maximum for every other bucket
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
