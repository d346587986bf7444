#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// Batch norm works on this: x (rows, columns), and mean and rstd (columns), if they are
/// known already. Statistics have the type that x is computed in.
struct BatchOperands {
    std::int64_t rows;
    std::int64_t columns;
    Numbers x;
    Numbers mean;
    Numbers rstd;
};

/// Elements of workspace that one sum over the rows needs, of the type that x is computed
/// in.
std::int64_t batch_partials(const BatchOperands& of);

/// sums (columns + 1) = the sum of each column, and then the number of rows.
void launch_batch_sums(cudaStream_t stream, Numbers workspace, Numbers sums,
                       const BatchOperands& of);

/// squares (columns) = the sum over the rows of (x - sums[column] / sums[columns])^2.
void launch_batch_squares(cudaStream_t stream, Numbers workspace, Numbers squares,
                          const BatchOperands& of, Numbers sums);

/// All have `columns` numbers, and sums one more. Without running statistics, none are
/// kept.
struct BatchMomentsOperands {
    std::int64_t columns;
    Numbers mean;
    Numbers rstd;
    Numbers sums;
    Numbers squares;
    Numbers running_mean{};
    Numbers running_variance{};
};

/// mean and rstd of a batch; running statistics go `momentum` of the way to the batch's.
void launch_batch_moments(cudaStream_t stream, const BatchMomentsOperands& of,
                          double momentum, double epsilon);

/// y = (x - mean) * rstd * weight + bias.
void launch_batch_norm(cudaStream_t stream, Numbers y, const BatchOperands& of,
                       Numbers weight, Numbers bias);

/// sums (2, columns) = the sums over the rows of dy, and of dy * (x - mean) * rstd. Takes
/// workspace for two sums.
void launch_batch_norm_backward_sums(cudaStream_t stream, Numbers workspace, Numbers sums,
                                     Numbers dy, const BatchOperands& of);

/// With x^ = (x - mean) * rstd and n = count[0]:
/// dx = rstd * weight * (dy - sums[0] / n - x^ * sums[1] / n).
void launch_batch_norm_backward_input(cudaStream_t stream, Numbers dx, Numbers dy,
                                      const BatchOperands& of, Numbers weight,
                                      Numbers sums, Numbers count);

}  // namespace lockstep::gpu
