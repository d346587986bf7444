#pragma once

#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// All columns of a tensor of which each rank has as many, in rank order:
/// own (N, c) gives (N, c t). An all-gather, (t-1)/t of the result's bytes,
/// and a copy. Its backward is own_columns.
Tensor gather_columns(TensorParallel& tp, const Tensor& own);

/// This rank's columns of a tensor that all ranks hold: whole (N, c t)
/// gives (N, c). A copy, no message. Its backward is gather_columns.
Tensor own_columns(TensorParallel& tp, const Tensor& whole);

}  // namespace lockstep
