#pragma once

#include <cstdint>
#include <string>
#include <vector>

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

/// What CUDA answered when it was asked about one GPU.
struct GpuAnswer {
    int gpu = 0;
    std::string name;
    int capability = 0;  ///< for computing: 75 is 7.5
    std::int64_t memory_bytes = 0;
    bool memory_pools = true;   ///< memory can be allocated in the order of a stream
    std::vector<int> compiled;  ///< capabilities that the kernels were compiled for
    int built = 0;              ///< CUDA that this was compiled against
    int driver = 0;             ///< the newest that the driver supports
    std::string error;    ///< of loading a kernel, "cudaErrorNoKernelImageForDevice";
                          ///< empty where there was none or that was not tried
    std::string meaning;  ///< of the error, in CUDA's words
};

/// "13.0"; empty for 0.
std::string cuda_version_text(int version);

/// Why no GPU can be used, in one sentence that says what would help; empty where one
/// can.
std::string cuda_problem(const CudaAnswer& answer);

/// "7.5" for 75.
std::string capability_text(int capability);

/// Why that GPU cannot be used, in one sentence that says what would help; empty where
/// it can.
std::string gpu_problem(const GpuAnswer& answer);

/// Why NCCL cannot be used: the versions, of what was loaded and of what this was built
/// against, as NCCL has them (22809 is 2.28.9), 0 where it gave none. Empty where it can.
std::string nccl_problem(int loaded, int built);

}  // namespace lockstep::gpu
