#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "src/device/formulas.hpp"

namespace lockstep::gpu {

template <typename T>
void launch_sgd(cudaStream_t stream, T* parameter, const T* gradient,
                std::int64_t elements, const SgdOptions& options);
template <typename T>
void launch_sgd_with_momentum(cudaStream_t stream, T* parameter, T* velocity,
                              const T* gradient, std::int64_t elements,
                              const SgdOptions& options);
template <typename T>
void launch_adamw(cudaStream_t stream, T* parameter, T* first_moment, T* second_moment,
                  const T* gradient, std::int64_t elements,
                  const formulas::AdamWStep<T>& by);

}  // namespace lockstep::gpu
