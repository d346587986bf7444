#pragma once

#include <vector>

#include "gpu/survey_problem.hpp"

namespace lockstep::gpu {

/// What CUDA answers. None of the first three makes a context on a GPU, which would take
/// a part of its memory and of a second. Those about a GPU throw GpuError.
CudaAnswer ask_cuda();
GpuAnswer ask_gpu(int gpu);
/// The GPUs, of so many, whose memory it can reach directly.
std::vector<int> ask_peers(int gpu, int gpus);

/// The same of the thread's GPU, which also tries to load the kernels: that makes its
/// context.
GpuAnswer ask_own_gpu();

}  // namespace lockstep::gpu
