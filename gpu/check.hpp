#pragma once

#include <cublas_v2.h>
#include <stdexcept>
#include <string>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// A call of CUDA, cuBLAS or NCCL that failed: which one, where, and what the library
/// calls it.
class GpuError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

void check(cudaError_t result, const char* call, const char* file, int line);
void check(cublasStatus_t result, const char* call, const char* file, int line);

}  // namespace lockstep::gpu

/// Every CUDA, cuBLAS and NCCL call is wrapped in this: throws GpuError unless it
/// succeeded.
#define GPU_CHECK(call) ::lockstep::gpu::check((call), #call, __FILE__, __LINE__)
