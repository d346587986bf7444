#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// What root mean square norm works on: x (rows, columns), rstd (rows).
template <typename T>
struct RmsNormOperands {
    std::int64_t rows;
    std::int64_t columns;
    const T* x;
    const T* rstd;
};

/// y = x * rstd * weight; rstd is written.
template <typename T>
void launch_rms_norm(cudaStream_t stream, T* y, T* rstd, const RmsNormOperands<T>& of,
                     const T* weight, T epsilon);

/// With g = dy * weight and x^ = x * rstd: dx = rstd * (g - x^ * mean(g * x^)).
template <typename T>
void launch_rms_norm_backward_input(cudaStream_t stream, T* dx, const T* dy,
                                    const RmsNormOperands<T>& of, const T* weight);

/// Elements of workspace that the next needs.
template <typename T>
std::int64_t rms_norm_partials(std::int64_t rows, std::int64_t columns);
/// d_weight (columns) += sum over rows of dy * x^.
template <typename T>
void launch_rms_norm_backward_weight(cudaStream_t stream, T* workspace, T* d_weight,
                                     const T* dy, const RmsNormOperands<T>& of);

}  // namespace lockstep::gpu
