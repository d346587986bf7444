#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::gpu {

struct GpuInfo {
    std::string name;
    std::string capability;  ///< "9.0"
    std::int64_t memory_bytes = 0;
    std::vector<int> peers;  ///< GPUs whose memory it can reach directly
    std::string problem;  ///< why it cannot be used, in one sentence; empty where it can
};

/// Says what this build and this machine have for the GPU twin. Versions are empty if
/// there are none.
struct Survey {
    bool built = false;      ///< with the GPU twin
    std::string cuda;        ///< that this was built against, "13.0"
    std::string driver;      ///< the CUDA version that the driver supports
    std::string nccl;        ///< that was loaded, "2.28.9"
    std::string nccl_built;  ///< that this was built against
    std::vector<GpuInfo> gpus;
    /// Why no GPU can be used, or not the first, in one sentence that says what would
    /// help; empty where it can.
    std::string problem;
    /// The problem of NCCL, which `--backend nccl` needs besides.
    std::string nccl_problem;
};

/// Makes no context on a GPU.
Survey survey();

}  // namespace lockstep::gpu
