#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// What a norm works on: x (rows, columns), mean and rstd (rows). Layer norm takes the
/// mean off; if `mean` is null, it is root mean square norm, which does not.
template <typename T>
struct NormOperands {
    std::int64_t rows;
    std::int64_t columns;
    const T* x;
    const T* mean;
    const T* rstd;
};

/// y = (x - mean) * rstd * weight + bias; mean and rstd are written. Without a mean,
/// y = x * rstd * weight, and `bias` is null.
template <typename T>
void launch_norm(cudaStream_t stream, T* y, T* mean, T* rstd, const NormOperands<T>& of,
                 const T* weight, const T* bias, T epsilon);

/// With g = dy * weight and x^ = (x - mean) * rstd:
/// dx = rstd * (g - mean(g) - x^ * mean(g * x^)).
/// Without a mean, x^ = x * rstd and dx = rstd * (g - x^ * mean(g * x^)).
template <typename T>
void launch_norm_backward_input(cudaStream_t stream, T* dx, const T* dy,
                                const NormOperands<T>& of, const T* weight);

/// Elements of workspace that the next needs.
template <typename T>
std::int64_t norm_partials(const NormOperands<T>& of);
/// d_weight (columns) += sum over rows of dy * x^; d_bias (columns) += that of dy, if
/// there is a mean.
template <typename T>
void launch_norm_backward_weight(cudaStream_t stream, T* workspace, T* d_weight,
                                 T* d_bias, const T* dy, const NormOperands<T>& of);

}  // namespace lockstep::gpu
