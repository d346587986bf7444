#include "gpu/survey_problem.hpp"

#include <fmt/format.h>

namespace lockstep::gpu {

namespace {

/// The first driver that a CUDA release runs on.
int oldest_driver(int cuda) {
    const int major = cuda / 1000;
    return major >= 13 ? 580 : major == 12 ? 525 : 450;
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

std::string nccl_problem(int version) {
    constexpr int kOldest = 21800;
    if (version == 0) return "NCCL does not tell its version: install NCCL 2.18 or later";
    if (version >= kOldest) return "";
    return fmt::format("NCCL {}.{} is too old: install NCCL 2.18 or later",
                       version / 10000, version / 100 % 100);
}

}  // namespace lockstep::gpu
