#pragma once

#include <cublas_v2.h>
#include <string>

#include <cuda_runtime.h>

#include "gpu/kernels/error.hpp"
#include "src/core/source_line.hpp"

namespace lockstep::gpu {

void check(cudaError_t result, const char* call, const char* file, int line);
void check(cublasStatus_t result, const char* call, const char* file, int line);

/// Returns the fault that has stopped the GPU for this process; each later call fails
/// with the same fault. Returns cudaSuccess if there is none.
cudaError_t fault_of_gpu();

/// Returns the error with more text, unless the error already names a rank. The text
/// begins with the rank and, if it is known, the rank's operation, such as "matmul at
/// train.cpp:7". After a fault of the GPU, the text also says that an earlier operation
/// may be the cause, unless each operation is waited for (`sync`).
GpuError named(const GpuError& error, int rank, const std::string& during, bool sync);
/// Returns "OPERATION at FILE:LINE".
std::string during(const std::string& operation, SourceLine at);

/// Calls `use`, which uses the GPU for a rank. Adds `doing()` to errors: see named().
template <typename Doing, typename Use>
auto naming(int rank, bool sync, const Doing& doing, const Use& use) {
    try {
        return use();
    } catch (const GpuError& error) {
        throw named(error, rank, doing(), sync);
    }
}

}  // namespace lockstep::gpu

/// Wraps every CUDA, cuBLAS and NCCL call: throws GpuError if the call fails.
#define GPU_CHECK(call) ::lockstep::gpu::check((call), #call, __FILE__, __LINE__)
