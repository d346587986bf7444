#include "gpu/launcher/environment.hpp"

#include <cstdlib>

namespace lockstep::gpu {

void set_environment() {
    constexpr int kKeep = 0;  // what the environment says
    ::setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
    ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", kKeep);
}

}  // namespace lockstep::gpu
