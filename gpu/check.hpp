#pragma once

#include <cublas_v2.h>
#include <string>

#include <cuda_runtime.h>

#include "gpu/kernels/error.hpp"
#include "src/core/source_line.hpp"

namespace lockstep::gpu {

void check(cudaError_t result, const char* call, const char* file, int line);
void check(cublasStatus_t result, const char* call, const char* file, int line);

/// Returns what has ended the GPU's work for this process, so that each later call fails
/// with it; cudaSuccess if nothing has.
cudaError_t fault_of_gpu();

/// Returns the error with the rank that has met it and what the rank did then ("matmul at
/// train.cpp:7"; nothing if that is not known), if the error does not name a rank yet.
/// After a fault of the GPU's it says that something earlier may be the cause, unless
/// operations are waited for (`sync`).
GpuError named(const GpuError& error, int rank, const std::string& during, bool sync);
/// Puts what a rank did into words.
std::string during(const std::string& operation, SourceLine at);

/// Uses the GPU for a rank; errors are named, with what `doing()` says.
template <typename Doing, typename Use>
auto naming(int rank, bool sync, const Doing& doing, const Use& use) {
    try {
        return use();
    } catch (const GpuError& error) {
        throw named(error, rank, doing(), sync);
    }
}

}  // namespace lockstep::gpu

/// Every CUDA, cuBLAS and NCCL call is wrapped in this: throws GpuError unless it
/// succeeded.
#define GPU_CHECK(call) ::lockstep::gpu::check((call), #call, __FILE__, __LINE__)
