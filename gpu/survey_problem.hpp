#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace lockstep::gpu {

/// CUDA's answer when it was asked for its GPUs. Versions are in CUDA's form: 13000 is
/// 13.0, 0 is none.
struct CudaAnswer {
    int built = 0;   ///< the CUDA version at compile time
    int driver = 0;  ///< the newest CUDA version that the driver supports
    int gpus = 0;
    std::string error;        ///< "cudaErrorNoDevice"; empty if there was none
    std::string meaning;      ///< of the error, in CUDA's words
    bool restricted = false;  ///< CUDA_VISIBLE_DEVICES is set
};

/// CUDA's answer when it was asked about one GPU.
struct GpuAnswer {
    int gpu = 0;
    std::string name;
    int capability = 0;  ///< its compute capability: 75 is 7.5
    std::int64_t memory_bytes = 0;
    bool memory_pools = true;   ///< memory can be allocated in stream order
    std::vector<int> compiled;  ///< capabilities that the kernels were compiled for
    int built = 0;              ///< the CUDA version at compile time
    int driver = 0;             ///< the newest CUDA version that the driver supports
    std::string error;    ///< of loading a kernel, "cudaErrorNoKernelImageForDevice";
                          ///< empty if there was no error, or no kernel was loaded
    std::string meaning;  ///< of the error, in CUDA's words
};

/// "13.0"; empty for 0.
std::string cuda_version_text(int version);

/// Returns why no GPU can be used, in one sentence that says what would help; empty if a
/// GPU can be used.
std::string cuda_problem(const CudaAnswer& answer);

/// "7.5" for 75.
std::string capability_text(int capability);

/// Returns why this GPU cannot be used, in one sentence that says what would help; empty
/// if it can.
std::string gpu_problem(const GpuAnswer& answer);

/// Returns why NCCL cannot be used; empty if it can. `loaded` is the loaded version, and
/// `built` is the version at compile time. Both are in NCCL's form (22809 is 2.28.9); 0
/// means unknown.
std::string nccl_problem(int loaded, int built);

}  // namespace lockstep::gpu
