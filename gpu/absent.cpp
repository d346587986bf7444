// What a build without CUDA has of the GPU twin: a sentence.

#include "gpu/cluster.hpp"
#include "gpu/survey.hpp"
#include "src/core/require.hpp"

namespace lockstep::gpu {

namespace {

constexpr const char* kAbsent =
    "this build has no GPU support: install the CUDA toolkit (nvcc, cuBLAS) and NCCL, "
    "then "
    "build again";

}  // namespace

std::unique_ptr<Device> make_device(int, DeviceMonitor&, DeviceOptions) {
    throw MissingError(kAbsent);
}

std::unique_ptr<Cluster> make_cluster(const ClusterOptions&) {
    throw MissingError(kAbsent);
}

Survey survey() {
    Survey survey;
    survey.problem = kAbsent;
    return survey;
}

}  // namespace lockstep::gpu
