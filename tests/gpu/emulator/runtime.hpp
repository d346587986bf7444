#pragma once

#include "tests/gpu/emulator/fault.hpp"
#include "tests/gpu/emulator/include/emulated_types.h"

namespace emulated {

/// The calling thread's device, as cudaSetDevice left it.
int current_device();

/// Why no call can work here: there is no GPU, or this process was forked from one that
/// used its own. cudaSuccess otherwise; the process has then used its GPUs.
cudaError_t begin();

/// Whether the kernels were compiled for these GPUs, as __CUDA_ARCH_LIST__ says.
bool has_kernels();

/// Lets blocks of the kernel share so much memory beside what it names; not more than a
/// GPU has.
bool allow_memory(const void* kernel, int bytes);

/// Makes an error the thread's last one, and gives it back.
cudaError_t remember(cudaError_t error);

/// A call that asks about GPUs without using them: begin(), what it does, and its error
/// remembered.
template <typename Call>
cudaError_t tell(const Call& call) {
    const cudaError_t ready = begin();
    return remember(ready == cudaSuccess ? call() : ready);
}

/// A call that uses the current device: if it has a fault, that is all it says.
template <typename Call>
cudaError_t answer(const Call& call) {
    return tell([&]() -> cudaError_t {
        const cudaError_t fault = fault_of(current_device());
        return fault == cudaSuccess ? call() : fault;
    });
}

}  // namespace emulated
