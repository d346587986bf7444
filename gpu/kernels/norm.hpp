#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// What layer norm works on: x (rows, columns), mean and rstd (rows).
template <typename T>
struct NormOperands {
    std::int64_t rows;
    std::int64_t columns;
    const T* x;
    const T* mean;
    const T* rstd;
};

/// y = (x - mean) * rstd * weight + bias; mean and rstd are written.
template <typename T>
void launch_layer_norm(cudaStream_t stream, T* y, T* mean, T* rstd,
                       const NormOperands<T>& of, const T* weight, const T* bias,
                       T epsilon);

/// With g = dy * weight and x^ = (x - mean) * rstd:
/// dx = rstd * (g - mean(g) - x^ * mean(g * x^)).
template <typename T>
void launch_layer_norm_backward_input(cudaStream_t stream, T* dx, const T* dy,
                                      const NormOperands<T>& of, const T* weight);

/// Elements of workspace that the next needs.
template <typename T>
std::int64_t layer_norm_partials(std::int64_t rows, std::int64_t columns);
/// d_weight (columns) += sum over rows of dy * x^; d_bias (columns) += that of dy.
template <typename T>
void launch_layer_norm_backward_weight(cudaStream_t stream, T* workspace, T* d_weight,
                                       T* d_bias, const T* dy, const NormOperands<T>& of);

}  // namespace lockstep::gpu
