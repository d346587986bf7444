#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/options.hpp"

namespace lockstep::gpu {

void launch_tanh(cudaStream_t stream, Numbers y, Numbers x, std::int64_t elements);
void launch_tanh_backward(cudaStream_t stream, Numbers dx, Numbers y, Numbers dy,
                          std::int64_t elements);
void launch_sigmoid(cudaStream_t stream, Numbers y, Numbers x, std::int64_t elements);
void launch_sigmoid_backward(cudaStream_t stream, Numbers dx, Numbers y, Numbers dy,
                             std::int64_t elements);
void launch_gelu(cudaStream_t stream, Numbers y, Numbers x, std::int64_t elements,
                 GeluForm form);
void launch_gelu_backward(cudaStream_t stream, Numbers dx, Numbers x, Numbers dy,
                          std::int64_t elements, GeluForm form);

/// y (rows, width) = silu(gate) * rest. In x (rows, 2 width), each row has the gate, then
/// the rest.
void launch_swiglu(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                   std::int64_t width);
/// dx (rows, 2 width), from dy (rows, width).
void launch_swiglu_backward(cudaStream_t stream, Numbers dx, Numbers x, Numbers dy,
                            std::int64_t rows, std::int64_t width);

}  // namespace lockstep::gpu
