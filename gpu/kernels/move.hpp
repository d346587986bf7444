#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace lockstep::gpu {

template <typename T>
void launch_fill(cudaStream_t stream, T* destination, std::int64_t elements, T value);

}  // namespace lockstep::gpu
