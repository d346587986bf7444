#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "src/device/token_rows.hpp"

namespace lockstep::gpu {

// All matrices are rows x columns; targets lie in [0, columns).

template <typename T>
void launch_softmax(cudaStream_t stream, T* y, const T* x, std::int64_t rows,
                    std::int64_t columns);
/// Which tokens the rows and the columns of each of some matrices are.
struct CausalRows {
    std::int64_t rows;  ///< of a matrix
    TokenRows queries;  ///< its rows
    TokenRows keys;     ///< its columns
};
/// A row sees the columns of tokens up to its own; the others are not looked at, and
/// their results are 0. As fast as without a mask where both are in the order of tokens;
/// else a column costs a division.
template <typename T>
void launch_causal_softmax(cudaStream_t stream, T* y, const T* x, std::int64_t rows,
                           std::int64_t columns, const CausalRows& causal);
template <typename T>
void launch_softmax_backward(cudaStream_t stream, T* dx, const T* y, const T* dy,
                             std::int64_t rows, std::int64_t columns);

/// losses (rows): -log softmax(logits)[target].
template <typename T>
void launch_cross_entropy(cudaStream_t stream, T* losses, const T* logits,
                          const std::int32_t* targets, std::int64_t rows,
                          std::int64_t columns);
/// by * (softmax(logits) - one_hot(targets)).
template <typename T>
void launch_cross_entropy_backward(cudaStream_t stream, T* d_logits, const T* logits,
                                   const std::int32_t* targets, std::int64_t rows,
                                   std::int64_t columns, T by);

}  // namespace lockstep::gpu
