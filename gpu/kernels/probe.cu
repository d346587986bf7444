#include <array>

#include "gpu/kernels/probe.hpp"

namespace lockstep::gpu {

namespace {

__global__ void probe_kernel(int* answer) {
    *answer = 1;
}

/// nvcc says 800 for compute capability 8.0.
constexpr auto kCapabilities = [] {
    std::array capabilities{__CUDA_ARCH_LIST__};
    for (int& capability : capabilities)
        capability /= 10;
    return capabilities;
}();

}  // namespace

std::span<const int> compiled_capabilities() {
    return kCapabilities;
}

cudaError_t probe_kernels() {
    cudaFuncAttributes attributes{};
    return cudaFuncGetAttributes(&attributes,
                                 reinterpret_cast<const void*>(probe_kernel));
}

}  // namespace lockstep::gpu
