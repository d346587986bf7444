#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/token_rows.hpp"

namespace lockstep::gpu {

// All matrices are rows x columns; targets lie in [0, columns).

void launch_softmax(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                    std::int64_t columns);
/// Says which tokens the rows and the columns of each of some matrices are.
struct CausalRows {
    std::int64_t rows;  ///< of a matrix
    TokenRows queries;  ///< its rows
    TokenRows keys;     ///< its columns
};
/// A row sees the columns of tokens up to its own; the others are not looked at, and
/// their results are 0. As fast as without a mask where both are in the order of tokens;
/// else a column costs a division.
void launch_causal_softmax(cudaStream_t stream, Numbers y, Numbers x, std::int64_t rows,
                           std::int64_t columns, const CausalRows& causal);
void launch_softmax_backward(cudaStream_t stream, Numbers dx, Numbers y, Numbers dy,
                             std::int64_t rows, std::int64_t columns);

/// y (rows), of the type that x is computed in: the logarithm of each row's sum of
/// exp(x).
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
/// by * (softmax(logits) - one_hot(targets)).
void launch_cross_entropy_backward(cudaStream_t stream, Numbers d_logits, Numbers logits,
                                   const std::int32_t* targets, std::int64_t rows,
                                   std::int64_t columns, double by);

}  // namespace lockstep::gpu
