#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// The operands of batch norm: x (rows, columns), and mean and rstd (columns) if they are
/// known already. Statistics have the type in which x is computed.
struct BatchOperands {
    std::int64_t rows;
    std::int64_t columns;
    Numbers x;
    Numbers mean;
    Numbers rstd;
};

/// Returns how many elements of workspace one sum over the rows needs. The elements have
/// the type in which x is computed.
std::int64_t batch_partials(const BatchOperands& operands);

/// sums (columns + 1) = the sum of each column, and then the number of rows.
void launch_batch_sums(cudaStream_t stream, Numbers workspace, Numbers sums,
                       const BatchOperands& operands);

/// squares (columns) = the sum over the rows of (x - sums[column] / sums[columns])^2.
void launch_batch_squares(cudaStream_t stream, Numbers workspace, Numbers squares,
                          const BatchOperands& operands, Numbers sums);

/// All tensors have `columns` numbers; `sums` has one more. Running statistics are
/// optional.
struct BatchMomentsOperands {
    std::int64_t columns;
    Numbers mean;
    Numbers rstd;
    Numbers sums;
    Numbers squares;
    Numbers running_mean{};
    Numbers running_variance{};
};

/// Computes mean and rstd of a batch. Running statistics move towards the batch's by the
/// fraction `momentum`.
void launch_batch_moments(cudaStream_t stream, const BatchMomentsOperands& operands,
                          double momentum, double epsilon);

/// y = (x - mean) * rstd * weight + bias.
void launch_batch_norm(cudaStream_t stream, Numbers y, const BatchOperands& operands,
                       Numbers weight, Numbers bias);

/// sums (2, columns) = the sums over the rows of dy, and of dy * (x - mean) * rstd. Needs
/// workspace for two sums.
void launch_batch_norm_backward_sums(cudaStream_t stream, Numbers workspace, Numbers sums,
                                     Numbers dy, const BatchOperands& operands);

/// With x^ = (x - mean) * rstd and n = count[0]:
/// dx = rstd * weight * (dy - sums[0] / n - x^ * sums[1] / n).
void launch_batch_norm_backward_input(cudaStream_t stream, Numbers dx, Numbers dy,
                                      const BatchOperands& operands, Numbers weight,
                                      Numbers sums, Numbers count);

}  // namespace lockstep::gpu
