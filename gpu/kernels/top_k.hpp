#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/options.hpp"

namespace lockstep::gpu {

/// Writes the k largest values of each row of x (rows, columns), the largest first, to
/// values (rows, k), and their columns to indices (rows, k). Reads a row k times; with
/// groups, also once for each of a group's best values. So k should be small.
void launch_top_k(cudaStream_t stream, Numbers values, std::int32_t* indices, Numbers x,
                  std::int64_t rows, std::int64_t columns, std::int64_t k,
                  const ColumnGroups& groups);

}  // namespace lockstep::gpu
