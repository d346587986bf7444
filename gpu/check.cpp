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
    cudaGetLastError();  // clears the error: no later launch reports it
    fail("CUDA", cudaGetErrorName(result), cudaGetErrorString(result), call, file, line);
}

void check(cublasStatus_t result, const char* call, const char* file, int line) {
    if (result == CUBLAS_STATUS_SUCCESS) return;
    fail("cuBLAS", cublasGetStatusName(result), cublasGetStatusString(result), call, file,
         line);
}

cudaError_t fault_of_gpu() {
    // This query fails only if the GPU has a fault.
    const cudaError_t result = cudaStreamQuery(nullptr);
    cudaGetLastError();  // clears the error: no later launch reports it
    return result == cudaErrorNotReady ? cudaSuccess : result;
}

std::string during(const std::string& operation, SourceLine at) {
    return at.line == 0 ? operation : fmt::format("{} at {}", operation, at.text());
}

GpuError named(const GpuError& error, int rank, const std::string& during, bool sync) {
    const std::string said = error.what();
    if (said.starts_with("rank ")) return error;
    std::string sentence =
        fmt::format("rank {}: {}{}{}", rank, during, during.empty() ? "" : ": ", said);
    const cudaError_t fault = fault_of_gpu();
    if (fault == cudaSuccess) return GpuError(sentence);
    const std::string name = cudaGetErrorName(fault);
    if (said.find(name) == std::string::npos)
        sentence += fmt::format("; the GPU has stopped with {} ({})", name,
                                cudaGetErrorString(fault));
    if (!sync)
        sentence +=
            "; an earlier operation may be the cause: use --set sync=1 to see which";
    return GpuError(sentence);
}

}  // namespace lockstep::gpu
