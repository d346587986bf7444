#pragma once

#include <string>
#include <vector>

#include "tests/gpu/emulator/include/cuda_runtime.h"
#include "tests/gpu/emulator/processes.hpp"

// Helpers of the emulator's own tests.

namespace emulated::test {

inline void works(cudaError_t result, int line = __builtin_LINE()) {
    expect(result == cudaSuccess, cudaGetErrorName(result), line);
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch(cudaStream_t stream, void (*kernel)(Parameters...), int blocks,
                   int threads, Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(static_cast<unsigned>(blocks));
    config.blockDim = dim3(static_cast<unsigned>(threads));
    config.stream = stream;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

inline cudaStream_t new_stream() {
    cudaStream_t stream = nullptr;
    works(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
    return stream;
}

template <typename T>
T* on_device(const std::vector<T>& values) {
    T* pointer = nullptr;
    works(cudaMalloc(&pointer, values.size() * sizeof(T)));
    works(cudaMemcpy(pointer, values.data(), values.size() * sizeof(T),
                     cudaMemcpyHostToDevice));
    return pointer;
}

template <typename T>
std::vector<T> on_host(const T* device, std::size_t n) {
    std::vector<T> host(n);
    works(cudaMemcpy(host.data(), device, n * sizeof(T), cudaMemcpyDeviceToHost));
    return host;
}

/// Runs `body` in a process of its own. Returns the error; empty if there is none.
inline std::string alone(lockstep::FunctionRef<void(int)> body) {
    return trouble(in_processes(1, body));
}

}  // namespace emulated::test
