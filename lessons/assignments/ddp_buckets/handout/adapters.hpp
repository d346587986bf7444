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
    /// The rows, divided by the rows of all micro-batches of all ranks in the step. This
    /// is the weight of the micro-batch's mean in the mean over all rows.
    double weight;
};
/// A rank's micro-batches of a step. Ranks may have different numbers of them, or none.
using MicroBatches = std::vector<MicroBatch>;

/// The maximum number of bytes of a bucket.
struct BucketLimits {
    std::int64_t first_bytes;  ///< of the first bucket, which begins with the last layers
    std::int64_t bytes;        ///< of every other bucket
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
