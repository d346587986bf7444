#pragma once

#include <stdexcept>

namespace lockstep::gpu {

/// A call of CUDA, cuBLAS or NCCL that failed: which one, where, and what the library
/// calls it.
class GpuError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

}  // namespace lockstep::gpu
