#pragma once

#include <cublas_v2.h>

#include <cuda_runtime.h>

#include "gpu/kernels/error.hpp"

namespace lockstep::gpu {

void check(cudaError_t result, const char* call, const char* file, int line);
void check(cublasStatus_t result, const char* call, const char* file, int line);

}  // namespace lockstep::gpu

/// Every CUDA, cuBLAS and NCCL call is wrapped in this: throws GpuError unless it
/// succeeded.
#define GPU_CHECK(call) ::lockstep::gpu::check((call), #call, __FILE__, __LINE__)
