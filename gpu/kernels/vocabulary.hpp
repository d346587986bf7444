#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// Logits (rows, columns) of entries [first, first + columns) of a vocabulary of `whole`;
/// entries from there on are padding. Targets lie in [0, whole).
template <typename T>
struct ShardLogits {
    const T* logits;
    std::int64_t rows;
    std::int64_t columns;
    std::int64_t first;
    std::int64_t whole;
};

/// maximum (rows); -infinity of padding alone.
template <typename T>
void launch_row_maximum(cudaStream_t stream, T* maximum, const ShardLogits<T>& of);

/// parts (2, rows): sums of exp(logit - maximum), and the targets' logits, 0 for a target
/// of another shard.
template <typename T>
void launch_cross_entropy_parts(cudaStream_t stream, T* parts, const ShardLogits<T>& of,
                                const std::int32_t* targets, const T* maximum);

/// losses (rows) = log(sum) + maximum - the target's logit.
template <typename T>
void launch_cross_entropy_of_parts(cudaStream_t stream, T* losses, const T* maximum,
                                   const T* parts, std::int64_t rows);

/// d_logits (rows, columns) = by * (exp(logit - maximum) / sum - one_hot(targets)), 0 in
/// padding.
template <typename T>
void launch_cross_entropy_backward_of_parts(cudaStream_t stream, T* d_logits,
                                            const ShardLogits<T>& of,
                                            const std::int32_t* targets, const T* maximum,
                                            const T* parts, T by);

}  // namespace lockstep::gpu
