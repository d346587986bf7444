#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

// All matrices are rows x columns; targets lie in [0, columns).

template <typename T>
void launch_softmax(cudaStream_t stream, T* y, const T* x, std::int64_t rows,
                    std::int64_t columns);
/// Row i of each `queries` rows sees columns [0, i]; the others' results are 0.
template <typename T>
void launch_causal_softmax(cudaStream_t stream, T* y, const T* x, std::int64_t rows,
                           std::int64_t columns, std::int64_t queries);
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
