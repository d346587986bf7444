#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

// Columns of a matrix by index, others in each row: `many` of them a row.

/// list[i][j] = matrix[i][indices[i][j]], of `elements` in all.
void launch_take_columns(cudaStream_t stream, Numbers list, Numbers matrix,
                         const std::int32_t* indices, std::int64_t elements,
                         std::int64_t many, std::int64_t columns);
/// matrix[i][indices[i][j]] += list[i][j], in order of j; the matrix has `elements`.
void launch_add_columns(cudaStream_t stream, Numbers matrix, Numbers list,
                        const std::int32_t* indices, std::int64_t elements,
                        std::int64_t many, std::int64_t columns);

}  // namespace lockstep::gpu
