#pragma once

#include "tests/gpu/emulator/fault.hpp"
#include "tests/gpu/emulator/include/emulated_types.h"

namespace emulated {

/// Returns the calling thread's device, as set by cudaSetDevice.
int current_device();

/// Returns why no call can work here: there is no GPU, or this process was forked from a
/// process that had used its GPUs. Otherwise returns cudaSuccess and notes that this
/// process uses its GPUs.
cudaError_t begin();

/// Returns whether the kernels were compiled for these GPUs, as __CUDA_ARCH_LIST__ says.
bool has_kernels();

/// Lets blocks of the kernel share `bytes` in addition to the memory that the kernel
/// names; returns false if a GPU has less.
bool allow_memory(const void* kernel, int bytes);

/// Makes this error the thread's last error, and returns it.
cudaError_t remember(cudaError_t error);

/// Runs a call that asks about GPUs without using them: begin(), then the call. Its error
/// is remembered.
template <typename Call>
cudaError_t tell(const Call& call) {
    const cudaError_t ready = begin();
    return remember(ready == cudaSuccess ? call() : ready);
}

/// Runs a call that uses the current device. If the device has a fault, returns only the
/// fault.
template <typename Call>
cudaError_t answer(const Call& call) {
    return tell([&]() -> cudaError_t {
        const cudaError_t fault = fault_of(current_device());
        return fault == cudaSuccess ? call() : fault;
    });
}

}  // namespace emulated
