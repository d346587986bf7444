#pragma once

#include "src/nn/gpt.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// A kit whose layers are shared out: each rank has some of the heads, from their queries
/// to their columns of c_proj, some of an MLP's inner columns, and some of the vocabulary
/// at both ends. Names, shapes of the wholes and initial values are those of one device.
///
/// A block moves 8 b s h (t-1)/t numbers a rank and micro-batch (Narayanan et al. 2021,
/// 2104.04473, section 3.2): f and g of attention, f and g of the MLP. What enters and
/// leaves a block is whole on every rank, or with SequenceParallel this rank's s/t of the
/// sequence. A GPT's logits are this rank's columns, (s, b, V/t), padded if t does not
/// divide V; the kit's loss takes them so.
///
/// Throws UsageError when a layer is made whose heads or columns the ranks do not divide.
GptKit tensor_parallel(GptKit kit, TensorParallel& tp);

/// Goes around that kit, and lets several ranks have the same head of keys and values if
/// there are more ranks than such heads, each with its own heads of queries: t/g copies
/// of each, and of its cache. For models that only infer, since nobody adds up the
/// gradients of copies: their backward is refused.
GptKit copy_key_heads(GptKit kit, TensorParallel& tp);

}  // namespace lockstep
