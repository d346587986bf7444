// What a build without CUDA has of the GPU twin: a sentence.

#include "gpu/cluster.hpp"
#include "gpu/survey.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

// LOCKSTEP_GPU_MISSING is what gpu/meson.build did not find.
constexpr const char* kAbsent =
    "the GPU twin is not built, because " LOCKSTEP_GPU_MISSING
    "; it takes the CUDA toolkit (nvcc, cuBLAS) and NCCL where Lockstep is built";

}  // namespace

std::unique_ptr<lockstep::Device> make_device(int, DeviceMonitor&, DeviceOptions) {
    throw MissingError(kAbsent);
}

std::unique_ptr<Process> Process::open(const ProcessOptions&) {
    throw MissingError(kAbsent);
}

Survey survey() {
    Survey survey;
    survey.problem = kAbsent;
    return survey;
}

}  // namespace lockstep::gpu
