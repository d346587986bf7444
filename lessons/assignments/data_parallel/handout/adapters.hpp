#pragma once

#include <cstdint>

#include "src/comm/rank.hpp"
#include "src/nn/module.hpp"

// Tests and the grader call only these functions, with these types. Your own functions
// may have any signature: adapters.cpp calls them.

/// One rank's rows of a batch that is sharded over the ranks. Shards differ in size; a
/// shard may have no rows.
struct Shard {
    lockstep::Tensor x;        ///< (rows, features), f64
    lockstep::Tensor targets;  ///< (rows), i32: the class of each row
    std::int64_t batch_rows;   ///< rows of all ranks' shards together; at least 1

    std::int64_t rows() const { return targets.elements(); }
};

namespace adapters {

lockstep::Tensor shard_gradient(lockstep::Rank& rank, lockstep::Module& network,
                                const Shard& shard, std::int64_t most_rows);
lockstep::Tensor batch_gradient(lockstep::Rank& rank, lockstep::Module& network,
                                const Shard& shard, std::int64_t most_rows);
lockstep::Tensor train(lockstep::Rank& rank, lockstep::Module& network,
                       const Shard& shard, std::int64_t most_rows, int steps,
                       double learning_rate);

}  // namespace adapters
