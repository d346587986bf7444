#pragma once

#include <vector>

#include "gpu/survey_problem.hpp"

namespace lockstep::gpu {

/// Ask CUDA. The first three functions make no context on a GPU; a context would take
/// some of its memory, and a part of a second. Functions about one GPU throw GpuError.
CudaAnswer ask_cuda();
GpuAnswer ask_gpu(int gpu);
/// Returns the GPUs, of `gpus`, whose memory `gpu` can reach directly.
std::vector<int> ask_peers(int gpu, int gpus);

/// As ask_gpu() for the thread's GPU, and also tries to load the kernels. That makes a
/// context on it.
GpuAnswer ask_own_gpu();

}  // namespace lockstep::gpu
