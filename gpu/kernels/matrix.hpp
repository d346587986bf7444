#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// y (rows, columns) += bias (columns).
void launch_add_bias(cudaStream_t stream, Numbers y, Numbers bias, std::int64_t rows,
                     std::int64_t columns);

/// x[i] *= factors[i] for the rows of x (rows, columns).
void launch_scale_rows(cudaStream_t stream, Numbers x, Numbers factors, std::int64_t rows,
                       std::int64_t columns);

/// Returns how many elements of workspace launch_accumulate_rows() needs. The elements
/// have the type in which x is computed.
std::int64_t accumulate_partials(Numbers x, std::int64_t rows, std::int64_t columns);
/// destination (columns) += the sum of the rows of x (rows, columns).
void launch_accumulate_rows(cudaStream_t stream, Numbers workspace, Numbers destination,
                            Numbers x, std::int64_t rows, std::int64_t columns);

/// Makes the columns of x (rows, columns), f32 or f64, orthonormal in order. Uses one
/// block.
void launch_orthonormalize(cudaStream_t stream, Numbers x, std::int64_t rows,
                           std::int64_t columns);

}  // namespace lockstep::gpu
