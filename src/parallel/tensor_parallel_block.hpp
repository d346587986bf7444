#pragma once

#include "src/nn/gpt.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

// Transformers of tensor-parallel layers: names, shapes and initial values are those of
// src/nn's modules of the same parts. A block moves 8 b s h (t-1)/t numbers a rank and
// micro-batch (Narayanan et al. 2021, 2104.04473, section 3.2): f and g of attention, f
// and g of the MLP. What enters and leaves is whole on every rank, or with
// SequenceParallel this rank's s/t of the sequence.

/// make_attention by heads: each rank has heads/t of them, from their queries to their
/// columns of c_proj. Throws UsageError unless the ranks divide the heads.
std::unique_ptr<Sequential> make_parallel_attention(const ParameterInit& init,
                                                    TensorParallel& tp,
                                                    std::int64_t hidden,
                                                    std::int64_t heads, bool causal);

/// make_mlp and make_swiglu_mlp, columns then rows: GELU and SwiGLU work
/// column by column, and need no message.
std::unique_ptr<Sequential> make_parallel_mlp(const ParameterInit& init,
                                              TensorParallel& tp, std::int64_t hidden,
                                              std::int64_t inner);
std::unique_ptr<Sequential> make_parallel_swiglu_mlp(const ParameterInit& init,
                                                     TensorParallel& tp,
                                                     std::int64_t hidden,
                                                     std::int64_t inner);

/// make_block. Throws UsageError for fewer heads of keys than of queries.
std::unique_ptr<Sequential> make_parallel_block(const ParameterInit& init,
                                                TensorParallel& tp,
                                                const BlockSizes& sizes);

/// make_gpt with the vocabulary shared out at both ends: ids (s, b) give
/// this rank's columns of the logits, (s, b, V/t), padded where t does not
/// divide V; for vocabulary_parallel_cross_entropy.
std::unique_ptr<Sequential> make_parallel_gpt(const ParameterInit& init,
                                              TensorParallel& tp, const GptSizes& sizes);

}  // namespace lockstep
