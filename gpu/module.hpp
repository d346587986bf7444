#pragma once

#include <memory>

#include "gpu/cluster.hpp"
#include "gpu/survey.hpp"

namespace lockstep::gpu {

/// What the GPU twin gives to the program. It is a module of its own, loaded when it is
/// first asked for: CUDA's and NCCL's libraries take a fifth of a second to load, and a
/// machine that lacks one can still do everything else.
struct Module {
    std::unique_ptr<lockstep::Device> (*make_device)(int index, DeviceMonitor& monitor,
                                                     DeviceOptions options);
    std::unique_ptr<Process> (*open)(const ProcessOptions& options);
    Survey (*survey)();
};

}  // namespace lockstep::gpu

/// The module's only symbol.
extern "C" const lockstep::gpu::Module* lockstep_gpu_module();
