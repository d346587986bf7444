#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

// Takes columns of a matrix by index; each row has its own `many` indices.

/// list[i][j] = matrix[i][indices[i][j]]; the list has `elements` elements.
void launch_take_columns(cudaStream_t stream, Numbers list, Numbers matrix,
                         const std::int32_t* indices, std::int64_t elements,
                         std::int64_t many, std::int64_t columns);
/// matrix[i][indices[i][j]] += list[i][j], in order of j; the matrix has `elements`
/// elements.
void launch_add_columns(cudaStream_t stream, Numbers matrix, Numbers list,
                        const std::int32_t* indices, std::int64_t elements,
                        std::int64_t many, std::int64_t columns);

}  // namespace lockstep::gpu
