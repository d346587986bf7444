#pragma once

#include <memory>

#include "gpu/cluster.hpp"
#include "gpu/survey.hpp"

namespace lockstep::gpu {

/// The functions that the GPU twin gives to the program. The twin is a module that is
/// loaded at its first use: loading the libraries of CUDA and NCCL takes a fifth of a
/// second, and a machine without them can still do everything else.
struct Module {
    std::unique_ptr<lockstep::Device> (*make_device)(int index, DeviceMonitor& monitor,
                                                     DeviceOptions options);
    std::unique_ptr<Process> (*open)(const ProcessOptions& options);
    Survey (*survey)();
};

}  // namespace lockstep::gpu

/// The module's only symbol.
extern "C" const lockstep::gpu::Module* lockstep_gpu_module();
