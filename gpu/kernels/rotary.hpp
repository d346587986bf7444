#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/attention.hpp"

namespace lockstep::gpu {

/// Rotates columns j and j + width / 2 of each head of `from` into the same columns of
/// `to`, which may be the same memory. The width must be even. If places are given, row i
/// of batch b has the position places[i batches + b].
void launch_rotate(cudaStream_t stream, const HeadRows& to, const HeadRows& from,
                   const AttentionShape& shape, const TokenRows& positions,
                   const RotaryOptions& options, const std::int32_t* places = nullptr);

}  // namespace lockstep::gpu
