#pragma once

namespace lockstep::gpu {

/// Throws MissingError with the survey's problem where no GPU can be used.
void require_gpu();
/// The same for what NCCL lacks.
void require_nccl();

/// What is asked of CUDA and NCCL before their first call, unless the environment says
/// otherwise: no lazy loading of kernels, which would wait for those that spin, and one
/// order of launches for all communicators.
void set_environment();

/// Lets NCCL take one GPU for several processes: since 2.30 by asking; before by names of
/// hosts that differ, so that the processes meet over sockets.
void share_gpu(int rank);

}  // namespace lockstep::gpu
