#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// The number of blocks in a reduction's first pass. It is the same on every device,
/// because it decides the order of the sum. It is large enough to fill today's GPUs.
inline constexpr int kMostPartials = 1024;
/// Bytes of workspace that each of these functions needs.
inline constexpr std::int64_t kReduceBytes = std::int64_t{kMostPartials} * 8;

/// result[0] (+)= the sum of `elements` values. The sum is in f64; integers wrap around.
template <typename S>
void launch_sum(cudaStream_t stream, void* workspace, Computed<S>* result,
                const S* values, std::int64_t elements, bool accumulate);

/// result[0] += the sum of the values' squares, in f64.
void launch_sum_of_squares(cudaStream_t stream, void* workspace, Numbers result,
                           Numbers values, std::int64_t elements);

/// result[0] = sum of (prediction - target)^2, in f64.
void launch_squared_error(cudaStream_t stream, void* workspace, Numbers result,
                          Numbers prediction, Numbers target, std::int64_t elements);

/// d_prediction = factor * (prediction - target).
void launch_squared_error_backward(cudaStream_t stream, Numbers d_prediction,
                                   Numbers prediction, Numbers target,
                                   std::int64_t elements, double factor);

/// The first index outside [0, bound); position is -1 if there is none.
struct FirstOutside {
    std::int64_t position;
    std::int64_t index;
};
void launch_first_outside(cudaStream_t stream, void* workspace, FirstOutside* first,
                          const std::int32_t* indices, std::int64_t elements,
                          std::int64_t bound);

}  // namespace lockstep::gpu
