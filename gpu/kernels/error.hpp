#pragma once

#include <stdexcept>

namespace lockstep::gpu {

/// A call of CUDA, cuBLAS or NCCL that failed: the call, its place, and the library's
/// name for the error.
class GpuError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace lockstep::gpu
