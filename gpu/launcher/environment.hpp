#pragma once

namespace lockstep::gpu {

/// What a run on NCCL asks of CUDA and NCCL before their first call in the process,
/// unless the environment says otherwise: no lazy loading of kernels, which would wait
/// for those that spin, and one order of launches for all communicators. Processes that
/// are started from this one inherit it.
void set_environment();

}  // namespace lockstep::gpu
