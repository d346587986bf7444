#pragma once

#include <vector>

#include "gpu/survey_problem.hpp"

namespace lockstep::gpu {

/// Functions that ask CUDA. The first three functions make no context on a GPU: a context
/// needs GPU memory and a part of a second. Functions about one GPU throw GpuError.
CudaAnswer ask_cuda();
GpuAnswer ask_gpu(int gpu);
/// Returns which of the `gpus` GPUs have memory that `gpu` can reach directly.
std::vector<int> ask_peers(int gpu, int gpus);

/// Like ask_gpu(), for the thread's GPU. Also tries to load the kernels, which makes a
/// context on the GPU.
GpuAnswer ask_own_gpu();

}  // namespace lockstep::gpu
