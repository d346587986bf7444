#pragma once

#include <span>

#include <cuda_runtime.h>

namespace lockstep::gpu {

/// The compute capabilities that the kernels were compiled for, ascending: 80 is 8.0.
std::span<const int> compiled_capabilities();

/// Loads a kernel on the thread's GPU. The returned error says whether the compiled code,
/// or the driver's translation of it, runs on that GPU. Makes the GPU's context.
cudaError_t probe_kernels();

}  // namespace lockstep::gpu
