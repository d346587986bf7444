#include "gpu/survey.hpp"

#include <cstdlib>

#include <cuda_runtime.h>
#include <fmt/format.h>
#include <nccl.h>

#include "gpu/check.hpp"
#include "gpu/environment.hpp"
#include "gpu/survey_problem.hpp"

namespace lockstep::gpu {

namespace {

CudaAnswer ask_cuda() {
    CudaAnswer answer;
    answer.built = CUDART_VERSION;
    if (cudaDriverGetVersion(&answer.driver) != cudaSuccess) answer.driver = 0;
    const cudaError_t result = cudaGetDeviceCount(&answer.gpus);
    if (result != cudaSuccess) {
        cudaGetLastError();  // a later launch shall not report it again
        answer.gpus = 0;
        answer.error = cudaGetErrorName(result);
        answer.meaning = cudaGetErrorString(result);
    }
    answer.restricted = std::getenv("CUDA_VISIBLE_DEVICES") != nullptr;
    return answer;
}

GpuInfo describe(int gpu, int gpus) {
    cudaDeviceProp properties{};
    GPU_CHECK(cudaGetDeviceProperties(&properties, gpu));
    GpuInfo info;
    info.name = properties.name;
    info.capability = fmt::format("{}.{}", properties.major, properties.minor);
    info.memory_bytes = static_cast<std::int64_t>(properties.totalGlobalMem);
    for (int peer = 0; peer < gpus; ++peer) {
        if (peer == gpu) continue;
        int reachable = 0;
        GPU_CHECK(cudaDeviceCanAccessPeer(&reachable, gpu, peer));
        if (reachable != 0) info.peers.push_back(peer);
    }
    return info;
}

}  // namespace

Survey survey() {
    set_environment();
    Survey survey;
    survey.built = true;
    const CudaAnswer cuda = ask_cuda();
    survey.cuda = cuda_version_text(cuda.built);
    survey.driver = cuda_version_text(cuda.driver);
    int nccl = 0;
    if (ncclGetVersion(&nccl) != ncclSuccess) nccl = 0;
    if (nccl > 0)
        survey.nccl = fmt::format("{}.{}.{}", nccl / 10000, nccl / 100 % 100, nccl % 100);
    survey.problem = cuda_problem(cuda);
    survey.nccl_problem = nccl_problem(nccl);
    try {
        for (int gpu = 0; gpu < cuda.gpus; ++gpu)
            survey.gpus.push_back(describe(gpu, cuda.gpus));
    } catch (const GpuError& error) {
        survey.problem = error.what();
    }
    return survey;
}

}  // namespace lockstep::gpu
