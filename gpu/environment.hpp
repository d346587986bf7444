#pragma once

namespace lockstep::gpu {

/// Throws MissingError with the survey's problem where no GPU can be used.
void require_gpu();
/// The same for what NCCL lacks.
void require_nccl();

/// Throws MissingError where the thread's GPU cannot run the kernels. Makes its context.
void require_kernels();

/// Lets NCCL take one GPU for several processes: since 2.30 by asking; before by names of
/// hosts that differ, so that the processes meet over sockets.
void share_gpu(int rank);

}  // namespace lockstep::gpu
