#pragma once

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// Throws GpuError, which names the kernel, for a launch that failed.
[[noreturn]] void fail_launch(cudaError_t result, const void* kernel);

}  // namespace lockstep::gpu
