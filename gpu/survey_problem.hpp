#pragma once

#include <string>

namespace lockstep::gpu {

/// What CUDA answered when it was asked for GPUs. Versions are as CUDA has them: 13000 is
/// 13.0, 0 is none.
struct CudaAnswer {
    int built = 0;   ///< that this was compiled against
    int driver = 0;  ///< the newest that the driver supports
    int gpus = 0;
    std::string error;        ///< "cudaErrorNoDevice"; empty where there was none
    std::string meaning;      ///< of the error, in CUDA's words
    bool restricted = false;  ///< CUDA_VISIBLE_DEVICES is set
};

/// "13.0"; empty for 0.
std::string cuda_version_text(int version);

/// Why no GPU can be used, in one sentence that says what would help; empty where one
/// can.
std::string cuda_problem(const CudaAnswer& answer);

/// Why NCCL cannot be used: its version as NCCL has it (22809 is 2.28.9), 0 where it gave
/// none. Empty where it can.
std::string nccl_problem(int version);

}  // namespace lockstep::gpu
