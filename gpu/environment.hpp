#pragma once

namespace lockstep::gpu {

/// Throws MissingError, with the problem that the survey found, if no GPU can be used.
void require_gpu();
/// Throws MissingError, with the problem that the survey found, if NCCL cannot be used.
void require_nccl();

/// Throws MissingError if the thread's GPU cannot run the kernels. Makes a context.
void require_kernels();

/// Lets NCCL use one GPU for several processes. NCCL 2.30 and later have a setting for
/// this. For older versions, gives each process its own host name, so that the processes
/// connect over sockets.
void share_gpu(int rank);

}  // namespace lockstep::gpu
