#pragma once

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// Throws GpuError, which names the kernel, for a launch that failed.
[[noreturn]] void fail_launch(cudaError_t result, const void* kernel);

/// Puts a kernel into the stream. A plain call, so that a C++ compiler can read it too.
template <typename... Parameters, typename... Arguments>
void launch(cudaStream_t stream, void (*kernel)(Parameters...), int blocks, int threads,
            Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.stream = stream;
    const cudaError_t result =
        cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    if (result != cudaSuccess) fail_launch(result, reinterpret_cast<const void*>(kernel));
}

}  // namespace lockstep::gpu
