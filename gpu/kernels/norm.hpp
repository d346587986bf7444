#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// A norm works on this: x (rows, columns), mean and rstd (rows). Layer norm takes the
/// mean off; if there is no `mean`, it is root mean square norm, which does not.
struct NormOperands {
    std::int64_t rows;
    std::int64_t columns;
    Numbers x;
    Numbers mean;  ///< none for root mean square norm
    Numbers rstd;
};

/// y = (x - mean) * rstd * weight + bias; mean and rstd are written. Without a mean,
/// y = x * rstd * weight, and there is no bias.
void launch_norm(cudaStream_t stream, Numbers y, Numbers mean, Numbers rstd,
                 const NormOperands& of, Numbers weight, Numbers bias, double epsilon);

/// With g = dy * weight and x^ = (x - mean) * rstd:
/// dx = rstd * (g - mean(g) - x^ * mean(g * x^)).
/// Without a mean, x^ = x * rstd and dx = rstd * (g - x^ * mean(g * x^)).
void launch_norm_backward_input(cudaStream_t stream, Numbers dx, Numbers dy,
                                const NormOperands& of, Numbers weight);

/// Elements of workspace that the next needs, of the type that x is computed in.
std::int64_t norm_partials(const NormOperands& of);
/// d_weight (columns) += sum over rows of dy * x^; d_bias (columns) += that of dy, if
/// there is a mean.
void launch_norm_backward_weight(cudaStream_t stream, Numbers workspace, Numbers d_weight,
                                 Numbers d_bias, Numbers dy, const NormOperands& of);

}  // namespace lockstep::gpu
