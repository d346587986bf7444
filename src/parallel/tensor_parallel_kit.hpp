#pragma once

#include "src/nn/gpt.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// Returns a kit whose layers are sharded: each rank has some of the heads, from their
/// queries to their columns of c_proj, some of an MLP's inner columns, and some of the
/// vocabulary at both ends. Names, shapes of whole tensors and initial values are those
/// of one device.
///
/// In a block each rank sends 8 b s h (t-1)/t numbers per micro-batch (Narayanan et al.
/// 2021, 2104.04473, section 3.2): f and g of attention, f and g of the MLP. A block's
/// input and output are whole on every rank; with SequenceParallel they are this rank's
/// s/t of the sequence. A GPT's logits are this rank's columns, (s, b, V/t), padded if t
/// does not divide V; the kit's loss takes them like this.
///
/// Making a layer throws UsageError if the ranks do not divide its heads or columns.
GptKit tensor_parallel(GptKit kit, TensorParallel& tp);

/// Wraps that kit for more ranks than heads of keys and values. Several ranks then have
/// the same such head, each with its own heads of queries: t/g copies of each head and of
/// its cache. Only for models that infer: the gradients of copies are not summed, so
/// their backward is refused.
GptKit copy_key_heads(GptKit kit, TensorParallel& tp);

}  // namespace lockstep
