#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// y (rows, columns) += bias (columns).
template <typename T>
void launch_add_bias(cudaStream_t stream, T* y, const T* bias, std::int64_t rows,
                     std::int64_t columns);

/// Elements of workspace that the next needs.
template <typename T>
std::int64_t accumulate_partials(std::int64_t rows, std::int64_t columns);
/// destination (columns) += the sum of the rows of x (rows, columns).
template <typename T>
void launch_accumulate_rows(cudaStream_t stream, T* workspace, T* destination, const T* x,
                            std::int64_t rows, std::int64_t columns);

}  // namespace lockstep::gpu
