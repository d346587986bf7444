#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// y (rows, width) = silu(gate) * rest of x (rows, 2 width), a gate beside the rest.
template <typename T>
void launch_swiglu(cudaStream_t stream, T* y, const T* x, std::int64_t rows,
                   std::int64_t width);
/// dx (rows, 2 width) for dy (rows, width).
template <typename T>
void launch_swiglu_backward(cudaStream_t stream, T* dx, const T* x, const T* dy,
                            std::int64_t rows, std::int64_t width);

}  // namespace lockstep::gpu
