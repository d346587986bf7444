#pragma once

#include <cstdint>

#include <cuda_runtime.h>

#include "gpu/kernels/numbers.hpp"
#include "src/device/options.hpp"

namespace lockstep::gpu {

// Attention in tiles of queries by tiles of keys: 64 of each in f32, 32 in f64 (Dao et
// al. 2022, FlashAttention, 2205.14135, algorithm 1; its loops the other way round, as in
// Dao 2023, FlashAttention-2, 2307.08691, section 3.1). A block of 256 threads owns a
// tile of one side and goes through those of the other, in their order; scores are in
// registers and shared memory only, 37 KB of which a block takes. Tiles in which no query
// sees a key are skipped, and only those in which one does not see all are masked.
//
// In bf16, heads of 64 and of 128 columns are multiplied by tensor cores, with sums in
// f32 (gpu/kernels/attention_bf16.cuh): a block of 128 threads owns 64 rows and goes
// through tiles of 64, backward of 32 where heads are the wider ones; it takes 47 to 87
// KiB of shared memory. Their weights, and what follows for scores backward, are rounded
// to bf16 before they are multiplied with, as FlashAttention has it. The state is f32.
//
// No atomics: a result is the work of one block, and the order of its sums follows from
// shapes, widths and tokens alone, not from where operands lie.

/// Heads of one operand. A head's rows are `pitch` elements apart, heads `width`.
struct HeadRows {
    Numbers tensor;
    std::int64_t first;  ///< element where head 0 of batch 0 begins
    std::int64_t rows;
    std::int64_t pitch;
    std::int64_t batch;  ///< from a batch to the next
};

/// Columns of a head that a block has registers for.
inline constexpr int kMostAttentionWidth = 256;

struct AttentionShape {
    std::int64_t batches;
    std::int64_t heads;  ///< of queries
    std::int64_t group;  ///< of them for each head of keys and values
    int width;           ///< up to kMostAttentionWidth
};

struct AttentionOperands {
    AttentionShape shape;
    HeadRows queries, keys, values;
    AttentionOptions options;
};

/// A tensor's numbers of rows are (batches, heads, rows).
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

/// Returns whether heads of bf16 and of this width can be attended to as they are:
/// whether the code that the GPU runs is for tensor cores.
bool attends_in_bf16(std::int64_t width);

/// Takes the keys into the state, which is read once and written once. 4 width flops a
/// pair; in the half of them that sums values, a width counts as the next of 16, 32, 64,
/// 128 and 256.
void launch_attend(cudaStream_t stream, const OnlineRows& state,
                   const AttentionOperands& of);

/// Adds to the gradients, each read once and written once. Two kernels: one owns keys and
/// adds to their gradients and their values', the other owns queries.
/// Differs: 14 width flops a pair, not 10, as either kernel computes the scores and dy v.
/// A single one would add to the queries' gradients from every block of keys, by atomics,
/// whose order no rerun repeats.
void launch_attend_backward(cudaStream_t stream, const AttentionGradients& gradients,
                            const AttentionOperands& of, const BackwardRows& rows);

// Both call these for heads of bf16.
void launch_attend_in_bf16(cudaStream_t stream, const OnlineRows& state,
                           const AttentionOperands& of);
void launch_attend_backward_in_bf16(cudaStream_t stream,
                                    const AttentionGradients& gradients,
                                    const AttentionOperands& of,
                                    const BackwardRows& rows);

/// products (batches, heads, rows): the sum over the width of x y; any width.
void launch_head_row_products(cudaStream_t stream, Numbers products, const HeadRows& x,
                              const HeadRows& y, const AttentionShape& shape);

/// y / sum, 0 where the sum is 0; maximum becomes maximum + log(sum). Any width.
void launch_finish_attention(cudaStream_t stream, const OnlineRows& state,
                             const AttentionShape& shape);

}  // namespace lockstep::gpu
