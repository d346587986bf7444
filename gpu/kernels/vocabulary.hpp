#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// Logits (rows, columns) of entries [first, first + columns) of a vocabulary of `whole`.
/// Entries from `whole` on are padding. Targets are in [0, whole).
struct ShardLogits {
    Numbers logits;
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t first;
    std::int64_t whole;
};

/// maximum (rows) = each row's largest logit, or -infinity if the row is all padding.
void launch_row_maximum(cudaStream_t stream, Numbers maximum, const ShardLogits& shard);

/// parts (2, rows): the sums of exp(logit - maximum), and the targets' logits (0 if the
/// target is in another shard).
void launch_cross_entropy_parts(cudaStream_t stream, Numbers parts,
                                const ShardLogits& shard, const std::int32_t* targets,
                                Numbers maximum);

/// losses (rows) = log(sum) + maximum - the target's logit.
void launch_cross_entropy_of_parts(cudaStream_t stream, Numbers losses, Numbers maximum,
                                   Numbers parts, std::int64_t rows);

/// d_logits (rows, columns) = factor * (exp(logit - maximum) / sum - one_hot(targets)),
/// and 0 in padding.
void launch_cross_entropy_backward_of_parts(cudaStream_t stream, Numbers d_logits,
                                            const ShardLogits& shard,
                                            const std::int32_t* targets, Numbers maximum,
                                            Numbers parts, double factor);

}  // namespace lockstep::gpu
