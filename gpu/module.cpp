#include "gpu/module.hpp"

extern "C" const lockstep::gpu::Module* lockstep_gpu_module() {
    using namespace lockstep::gpu;
    static const Module module{make_device, Process::open, survey};
    return &module;
}
