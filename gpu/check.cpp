#include "gpu/check.hpp"

#include <fmt/format.h>

#include "src/core/source_line.hpp"

namespace lockstep::gpu {

namespace {

[[noreturn]] void fail(const char* library, const char* name, const char* meaning,
                       const char* call, const char* file, int line) {
    const std::string what = call;
    throw GpuError(fmt::format("{} failed with {} ({}) in {} at {}", library, name,
                               meaning, what.substr(0, what.find('(')),
                               SourceLine{file, line}.text()));
}

}  // namespace

void check(cudaError_t result, const char* call, const char* file, int line) {
    if (result == cudaSuccess) return;
    cudaGetLastError();  // a later launch shall not report it again
    fail("CUDA", cudaGetErrorName(result), cudaGetErrorString(result), call, file, line);
}

void check(cublasStatus_t result, const char* call, const char* file, int line) {
    if (result == CUBLAS_STATUS_SUCCESS) return;
    fail("cuBLAS", cublasGetStatusName(result), cublasGetStatusString(result), call, file,
         line);
}

}  // namespace lockstep::gpu
