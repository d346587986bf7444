#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::gpu {

struct GpuInfo {
    std::string name;
    std::string capability;  ///< "9.0"
    std::int64_t memory_bytes = 0;
    std::vector<int> peers;  ///< GPUs whose memory this GPU can reach directly
    std::string problem;     ///< why the GPU cannot be used, in one sentence; else empty
};

/// The software and GPUs that this build and this machine have for the GPU twin. A
/// version is empty if it is unknown.
struct Survey {
    bool built = false;      ///< with the GPU twin
    std::string cuda;        ///< the CUDA version that this was built with, "13.0"
    std::string driver;      ///< the newest CUDA version that the driver supports
    std::string nccl;        ///< the NCCL version that was loaded, "2.28.9"
    std::string nccl_built;  ///< the NCCL version that this was built with
    std::vector<GpuInfo> gpus;
    /// Why there is no GPU, or why the first one cannot be used, in one sentence that
    /// says what would help; empty if there is no problem.
    std::string problem;
    /// The problem with NCCL, which `--backend nccl` also needs; empty if there is none.
    std::string nccl_problem;
};

/// Makes no context on a GPU.
Survey survey();

}  // namespace lockstep::gpu
