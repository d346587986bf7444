#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

/// factor[0] = min(1, most / (sqrt(squares[0]) + 1e-6)).
void launch_clip_factor(cudaStream_t stream, Numbers factor, Numbers squares,
                        double most);

// A bf16 gradient may have f32 parameters.

void launch_sgd(cudaStream_t stream, Numbers parameter, Numbers gradient,
                std::int64_t elements, const SgdOptions& options);
void launch_sgd_with_momentum(cudaStream_t stream, Numbers parameter, Numbers velocity,
                              Numbers gradient, std::int64_t elements,
                              const SgdOptions& options);
void launch_adamw(cudaStream_t stream, Numbers parameter, Numbers first_moment,
                  Numbers second_moment, Numbers gradient, std::int64_t elements,
                  const AdamWOptions& options, std::int64_t step);

}  // namespace lockstep::gpu
