#pragma once

#include <type_traits>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// Throws GpuError for a launch that failed; the message names the kernel.
[[noreturn]] void fail_launch(cudaError_t result, const void* kernel);

/// Puts a kernel into the stream. This is a plain call, so that a C++ compiler can also
/// compile it. Each block gets its own Memory (block_memory()); void means no memory.
template <typename Memory, typename... Parameters, typename... Arguments>
void launch_with_memory(cudaStream_t stream, void (*kernel)(Parameters...), int blocks,
                        int threads, Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.stream = stream;
    if constexpr (!std::is_void_v<Memory>) {
        config.dynamicSmemBytes = sizeof(Memory);
        const cudaError_t allowed = cudaFuncSetAttribute(
            kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, int{sizeof(Memory)});
        if (allowed != cudaSuccess)
            fail_launch(allowed, reinterpret_cast<const void*>(kernel));
    }
    const cudaError_t result =
        cudaLaunchKernelEx(&config, kernel, static_cast<Parameters>(arguments)...);
    if (result != cudaSuccess) fail_launch(result, reinterpret_cast<const void*>(kernel));
}

template <typename... Parameters, typename... Arguments>
void launch(cudaStream_t stream, void (*kernel)(Parameters...), int blocks, int threads,
            Arguments... arguments) {
    launch_with_memory<void>(stream, kernel, blocks, threads, arguments...);
}

}  // namespace lockstep::gpu
