#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/token_rows.hpp"

namespace lockstep::gpu {

// All matrices are rows x columns; targets are in [0, columns).

void launch_softmax(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                    std::int64_t columns);
/// The tokens of the rows and columns of several stacked matrices.
struct CausalRows {
    std::int64_t rows;  ///< of one matrix
    TokenRows queries;  ///< tokens of its rows
    TokenRows keys;     ///< tokens of its columns
};
/// A row sees columns whose token is not after its own. Other columns are not read; their
/// results are 0. If rows and columns are in the order of tokens, this is as fast as
/// without a mask; otherwise it costs a division per column.
void launch_causal_softmax(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                           std::int64_t columns, const CausalRows& causal);
void launch_softmax_backward(cudaStream_t stream, Numbers dx, Numbers y, Numbers dy,
                             std::int64_t rows, std::int64_t columns);

/// y (rows) = the logarithm of each row's sum of exp(x). y has the type in which x is
/// computed.
void launch_log_sum_exp(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                        std::int64_t columns);
/// y = x / the sum of its row.
void launch_normalize_rows(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                           std::int64_t columns);
void launch_normalize_rows_backward(cudaStream_t stream, Numbers dx, Numbers x,
                                    Numbers dy, std::int64_t rows, std::int64_t columns);

/// losses (rows): -log softmax(logits)[target].
void launch_cross_entropy(cudaStream_t stream, Numbers losses, Numbers logits,
                          const std::int32_t* targets, std::int64_t rows,
                          std::int64_t columns);
/// d_logits = factor * (softmax(logits) - one_hot(targets)).
void launch_cross_entropy_backward(cudaStream_t stream, Numbers d_logits, Numbers logits,
                                   const std::int32_t* targets, std::int64_t rows,
                                   std::int64_t columns, double factor);

}  // namespace lockstep::gpu
