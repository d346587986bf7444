#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// The operands of a norm: x (rows, columns), mean and rstd (rows). Layer norm subtracts
/// the mean. Root mean square norm has no `mean` and does not subtract it.
struct NormOperands {
    std::int64_t rows;
    std::int64_t columns;
    Numbers x;
    Numbers mean;  ///< none for root mean square norm
    Numbers rstd;
};

/// y = (x - mean) * rstd * weight + bias; also writes mean and rstd. Without a mean, y =
/// x * rstd * weight, and there is no bias.
void launch_norm(cudaStream_t stream, Numbers y, Numbers mean, Numbers rstd,
                 const NormOperands& operands, Numbers weight, Numbers bias,
                 double epsilon);

/// With g = dy * weight and x^ = (x - mean) * rstd:
/// dx = rstd * (g - mean(g) - x^ * mean(g * x^)).
/// Without a mean, x^ = x * rstd and dx = rstd * (g - x^ * mean(g * x^)).
void launch_norm_backward_input(cudaStream_t stream, Numbers dx, Numbers dy,
                                const NormOperands& operands, Numbers weight);

/// Returns how many elements of workspace launch_norm_backward_weight() needs. The
/// elements have the type in which x is computed.
std::int64_t norm_partials(const NormOperands& operands);
/// d_weight (columns) += the sum over rows of dy * x^. With a mean, d_bias (columns) +=
/// the sum over rows of dy.
void launch_norm_backward_weight(cudaStream_t stream, Numbers workspace, Numbers d_weight,
                                 Numbers d_bias, Numbers dy,
                                 const NormOperands& operands);

}  // namespace lockstep::gpu
