#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/core/philox.hpp"

namespace lockstep::gpu {

/// destination[i] = low + span * uniform number `offset + i` of the stream.
void launch_random_uniform(cudaStream_t stream, Numbers destination,
                           std::int64_t elements, const RandomStream& numbers, double low,
                           double span, std::int64_t offset);

/// destination[i] = mean + deviation * normal number `offset + i` of the stream.
void launch_random_normal(cudaStream_t stream, Numbers destination, std::int64_t elements,
                          const RandomStream& numbers, double mean, double deviation,
                          std::int64_t offset);

/// y[i] = x[i] / (1 - probability), or 0 if uniform number `offset + i` of the stream is
/// below the probability.
void launch_dropout(cudaStream_t stream, Numbers y, Numbers x, std::int64_t elements,
                    const RandomStream& numbers, double probability, std::int64_t offset);

}  // namespace lockstep::gpu
