#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/options.hpp"

namespace lockstep::gpu {

/// The k largest of each row of x (rows, columns) into values (rows, k), the largest
/// first, and their columns into indices (rows, k). Reads a row k times, and before that
/// once for each of a group's best: for few of them.
void launch_top_k(cudaStream_t stream, Numbers values, std::int32_t* indices, Numbers x,
                  std::int64_t rows, std::int64_t columns, std::int64_t k,
                  const ColumnGroups& groups);

}  // namespace lockstep::gpu
