#pragma once

#include <cstdint>

#include <cuda_runtime.h>

namespace lockstep::gpu {

template <typename T>
void launch_tanh(cudaStream_t stream, T* y, const T* x, std::int64_t elements);
template <typename T>
void launch_tanh_backward(cudaStream_t stream, T* dx, const T* y, const T* dy,
                          std::int64_t elements);
template <typename T>
void launch_gelu(cudaStream_t stream, T* y, const T* x, std::int64_t elements);
template <typename T>
void launch_gelu_backward(cudaStream_t stream, T* dx, const T* x, const T* dy,
                          std::int64_t elements);

/// y (rows, width) = silu(gate) * rest of x (rows, 2 width), a gate beside the rest.
template <typename T>
void launch_swiglu(cudaStream_t stream, T* y, const T* x, std::int64_t rows,
                   std::int64_t width);
/// dx (rows, 2 width) for dy (rows, width).
template <typename T>
void launch_swiglu_backward(cudaStream_t stream, T* dx, const T* x, const T* dy,
                            std::int64_t rows, std::int64_t width);

}  // namespace lockstep::gpu
