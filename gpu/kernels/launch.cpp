#include "gpu/kernels/launch.cuh"

#include <cstdlib>
#include <cxxabi.h>
#include <memory>
#include <string>

#include <fmt/format.h>

#include "gpu/kernels/error.hpp"

namespace lockstep::gpu {

namespace {

/// Returns the kernel's name in the source if CUDA knows it.
std::string name_of(const void* kernel) {
    const char* symbol = nullptr;
#if CUDART_VERSION >= 12030
    if (cudaFuncGetName(&symbol, kernel) != cudaSuccess) symbol = nullptr;
#else
    static_cast<void>(kernel);
#endif
    if (symbol == nullptr) return "a kernel";
    int status = 0;
    const std::unique_ptr<char, void (*)(void*)> readable(
        abi::__cxa_demangle(symbol, nullptr, nullptr, &status), std::free);
    return status == 0 ? readable.get() : symbol;
}

}  // namespace

void fail_launch(cudaError_t result, const void* kernel) {
    const std::string name = name_of(kernel);
    cudaGetLastError();  // clears the error: no later launch reports it
    throw GpuError(fmt::format("CUDA failed with {} ({}) in the launch of {}",
                               cudaGetErrorName(result), cudaGetErrorString(result),
                               name));
}

}  // namespace lockstep::gpu
