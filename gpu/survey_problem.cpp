#include "gpu/survey_problem.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::gpu {

namespace {

/// Returns the first driver version that a CUDA release runs on.
int oldest_driver(int cuda) {
    const int major = cuda / 1000;
    return major >= 13 ? 580 : major == 12 ? 525 : 450;
}

int first_capability(const GpuAnswer& answer) {
    return *std::min_element(answer.compiled.begin(), answer.compiled.end());
}

/// The driver can translate a kernel for a capability above the one it was compiled for.
bool fits(const GpuAnswer& answer) {
    return first_capability(answer) <= answer.capability;
}

std::string compiled_text(const GpuAnswer& answer) {
    if (!fits(answer)) return capability_text(first_capability(answer)) + " and later";
    std::string text;
    for (const int capability : answer.compiled)
        text += (text.empty() ? "" : ", ") + capability_text(capability);
    return text;
}

std::string build_advice(const GpuAnswer& answer) {
    constexpr int kFirstOfCuda13 = 75;
    const bool forgotten = answer.capability < kFirstOfCuda13 && answer.built >= 13000;
    return fmt::format("build with {}-Dgpu_arch={}",
                       forgotten ? "the toolkit of CUDA 12 and " : "", answer.capability);
}

}  // namespace

std::string cuda_version_text(int version) {
    if (version == 0) return "";
    return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

std::string cuda_problem(const CudaAnswer& answer) {
    const std::string built = cuda_version_text(answer.built);
    const int oldest = oldest_driver(answer.built);
    if (answer.error == "cudaErrorStubLibrary")
        return "the libcuda.so that was loaded is the CUDA toolkit's stub, which is for "
               "linking only: take its folder out of LD_LIBRARY_PATH";
    if (answer.driver == 0)
        return fmt::format(
            "this machine has no NVIDIA driver: install one, {} or later, or run on a "
            "machine that has a GPU",
            oldest);
    if (answer.error == "cudaErrorInsufficientDriver")
        return fmt::format(
            "the NVIDIA driver is too old: it supports CUDA {} and this build needs {}; "
            "install driver {} or later, or build with the toolkit of CUDA {}",
            cuda_version_text(answer.driver), built, oldest,
            cuda_version_text(answer.driver));
    const bool none = answer.error.empty() && answer.gpus == 0;
    if (none || answer.error == "cudaErrorNoDevice")
        return answer.restricted ? "CUDA_VISIBLE_DEVICES hides every GPU from this "
                                   "program: unset it, or "
                                   "let it name a GPU that nvidia-smi lists"
                                 : "the NVIDIA driver finds no GPU: run on a machine "
                                   "that has one, or see "
                                   "whether nvidia-smi lists it";
    if (!answer.error.empty())
        return fmt::format(
            "CUDA cannot start: {} ({}); see whether nvidia-smi lists the GPUs",
            answer.error, answer.meaning);
    return "";
}

std::string capability_text(int capability) {
    return fmt::format("{}.{}", capability / 10, capability % 10);
}

std::string gpu_problem(const GpuAnswer& answer) {
    const std::string gpu = fmt::format("GPU {} ({})", answer.gpu, answer.name);
    if (!fits(answer) || answer.error == "cudaErrorNoKernelImageForDevice")
        return fmt::format(
            "the kernels were compiled for compute capability {}, but {} has {}; {}",
            compiled_text(answer), gpu, capability_text(answer.capability),
            build_advice(answer));
    if (answer.error == "cudaErrorUnsupportedPtxVersion")
        return fmt::format(
            "the kernels were compiled for compute capability {} by CUDA {}, which a "
            "driver of CUDA {} cannot translate for {} of {}; {}, or install a newer "
            "driver",
            compiled_text(answer), cuda_version_text(answer.built),
            cuda_version_text(answer.driver), gpu, capability_text(answer.capability),
            build_advice(answer));
    if (!answer.error.empty())
        return fmt::format(
            "{} cannot load the kernels: {} ({}); check this GPU with nvidia-smi", gpu,
            answer.error, answer.meaning);
    if (!answer.memory_pools)
        return fmt::format(
            "{} cannot allocate memory in stream order (some virtual GPUs cannot); use "
            "another GPU",
            gpu);
    return "";
}

std::string nccl_problem(int loaded, int built) {
    constexpr int kOldest = 21800;
    const auto text = [](int version) {
        return fmt::format("{}.{}", version / 10000, version / 100 % 100);
    };
    if (loaded == 0) return "the version of NCCL is unknown: install NCCL 2.18 or later";
    if (loaded < kOldest)
        return fmt::format("NCCL {} is too old: install NCCL 2.18 or later",
                           text(loaded));
    if (loaded / 100 < built / 100)
        return fmt::format(
            "NCCL {} was loaded, but this was built against {}: let LD_LIBRARY_PATH name "
            "the folder of NCCL {} or later, or build against {}",
            text(loaded), text(built), text(built), text(loaded));
    return "";
}

}  // namespace lockstep::gpu
