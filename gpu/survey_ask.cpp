#include "gpu/survey_ask.hpp"

#include <cstdlib>

#include <cuda_runtime.h>

#include "gpu/check.hpp"
#include "gpu/kernels/probe.hpp"

namespace lockstep::gpu {

namespace {

/// Sets the name and meaning of an error and clears it, so that a later launch does not
/// report it again.
void take_error(cudaError_t result, std::string& name, std::string& meaning) {
    if (result == cudaSuccess) return;
    cudaGetLastError();
    name = cudaGetErrorName(result);
    meaning = cudaGetErrorString(result);
}

int driver_version() {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
}

}  // namespace

CudaAnswer ask_cuda() {
    CudaAnswer answer;
    answer.built = CUDART_VERSION;
    answer.driver = driver_version();
    take_error(cudaGetDeviceCount(&answer.gpus), answer.error, answer.meaning);
    if (!answer.error.empty()) answer.gpus = 0;
    answer.restricted = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
    return answer;
}

GpuAnswer ask_gpu(int gpu) {
    cudaDeviceProp properties{};
    GPU_CHECK(cudaGetDeviceProperties(&properties, gpu));
    int memory_pools = 0;
    GPU_CHECK(
        cudaDeviceGetAttribute(&memory_pools, cudaDevAttrMemoryPoolsSupported, gpu));
    const auto compiled = compiled_capabilities();
    GpuAnswer answer;
    answer.gpu = gpu;
    answer.name = properties.name;
    answer.capability = 10 * properties.major + properties.minor;
    answer.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
    answer.memory_pools = memory_pools != 0;
    answer.compiled.assign(compiled.begin(), compiled.end());
    answer.built = CUDART_VERSION;
    answer.driver = driver_version();
    return answer;
}

std::vector<int> ask_peers(int gpu, int gpus) {
    std::vector<int> peers;
    for (int peer = 0; peer < gpus; ++peer) {
        if (peer == gpu) continue;
        int reachable = 0;
        GPU_CHECK(cudaDeviceCanAccessPeer(&reachable, gpu, peer));
        if (reachable != 0) peers.push_back(peer);
    }
    return peers;
}

GpuAnswer ask_own_gpu() {
    int gpu = 0;
    GPU_CHECK(cudaGetDevice(&gpu));
    GpuAnswer answer = ask_gpu(gpu);
    take_error(probe_kernels(), answer.error, answer.meaning);
    return answer;
}

}  // namespace lockstep::gpu
