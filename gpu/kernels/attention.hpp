#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/options.hpp"

namespace lockstep::gpu {

// Attention in tiles of queries by tiles of keys: 64 of each in f32, 32 in f64 (Dao et
// al. 2022, FlashAttention, 2205.14135, algorithm 1; with its loops exchanged, as in Dao
// 2023, FlashAttention-2, 2307.08691, section 3.1). A block of 256 threads owns a tile of
// one side and goes through the tiles of the other side, in order. Scores are only in
// registers and in shared memory (37 KB per block). Tiles in which no query sees a key
// are skipped. Only tiles in which some query does not see all keys are masked.
//
// In bf16, tensor cores multiply heads of 64 and of 128 columns, with sums in f32
// (gpu/kernels/attention_bf16.cuh). A block of 128 threads owns 64 rows and goes through
// tiles of 64 rows, or of 32 in the backward of the wider heads. The block needs 47 to 87
// KiB of shared memory. As in FlashAttention, weights are rounded to bf16 before the next
// product; so are the gradients of scores in the backward. The state is f32.
//
// There are no atomics: each result is computed by one block. The order of its sums
// depends only on shapes, widths and tokens, not on the operands' addresses.

/// The heads of one operand. Rows are `pitch` elements apart; heads are `width` apart.
struct HeadRows {
    Numbers tensor;
    std::int64_t first;  ///< first element of head 0 of batch 0
    std::int64_t rows;
    std::int64_t pitch;
    std::int64_t batch;  ///< elements from one batch to the next
};

/// A head's maximum number of columns: a block has no registers for more.
inline constexpr int kMostAttentionWidth = 256;

struct AttentionShape {
    std::int64_t batches;
    std::int64_t heads;  ///< number of heads of queries
    std::int64_t group;  ///< query heads per head of keys and values
    int width;           ///< up to kMostAttentionWidth
};

struct AttentionOperands {
    AttentionShape shape;
    HeadRows queries, keys, values;
    AttentionOptions options;
};

/// maximum and sum have one number per row: (batches, heads, rows).
struct OnlineRows {
    HeadRows y;
    Numbers maximum;
    Numbers sum;
};

struct AttentionGradients {
    HeadRows queries, keys, values;
};

struct BackwardRows {
    HeadRows dy;
    Numbers log_sum_exp;
    Numbers dy_y;
};

/// Returns whether heads of bf16 with this width need no conversion to f32: whether the
/// GPU computes them with tensor cores.
bool attends_in_bf16(std::int64_t width);

/// Adds the keys to the state, which is read once and written once. Needs 4 width flops
/// per pair of a query and a key: half for the score, half to sum values. For the second
/// half, the width is rounded up to 16, 32, 64, 128 or 256.
void launch_attend(cudaStream_t stream, const OnlineRows& state,
                   const AttentionOperands& operands);

/// Adds to the gradients; each is read once and written once. There are two kernels. In
/// the first, a block owns keys, and adds to the gradients of keys and values. In the
/// second, a block owns queries, and adds to their gradients.
///
/// Differs: needs 14 width flops per pair, not 10, because both kernels compute the
/// scores and dy v. In a single kernel, every block of keys would add to the queries'
/// gradients; this needs atomics, whose order differs from run to run.
void launch_attend_backward(cudaStream_t stream, const AttentionGradients& gradients,
                            const AttentionOperands& operands, const BackwardRows& rows);

// launch_attend and launch_attend_backward call these for heads of bf16.
void launch_attend_in_bf16(cudaStream_t stream, const OnlineRows& state,
                           const AttentionOperands& operands);
void launch_attend_backward_in_bf16(cudaStream_t stream,
                                    const AttentionGradients& gradients,
                                    const AttentionOperands& operands,
                                    const BackwardRows& rows);

/// products (batches, heads, rows) = the sum of x y over the width. For any width.
void launch_head_row_products(cudaStream_t stream, Numbers products, const HeadRows& x,
                              const HeadRows& y, const AttentionShape& shape);

/// y / sum, or 0 if the sum is 0; maximum becomes maximum + log(sum). For any width.
void launch_finish_attention(cudaStream_t stream, const OnlineRows& state,
                             const AttentionShape& shape);

}  // namespace lockstep::gpu
