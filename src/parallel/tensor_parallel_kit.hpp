#pragma once

#include "src/nn/gpt.hpp"
#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// Returns a kit whose layers are sharded. Each rank has some of the heads (from their
/// queries to their columns of c_proj), some of an MLP's inner columns, and some of the
/// vocabulary at both ends. Names, shapes of whole tensors and initial values are the
/// same as on one device.
///
/// In a block each rank sends 8 b s h (t-1)/t numbers per micro-batch, for f and g of
/// attention and of the MLP (Narayanan et al. 2021, 2104.04473, section 3.2). A block's
/// input and output are whole on every rank; with SequenceParallel a rank has only its
/// s/t of the sequence. A GPT's logits are this rank's columns, (s, b, V/t), padded if t
/// does not divide V; the kit's loss expects this form.
///
/// Making a layer throws UsageError if the ranks do not divide its heads or columns.
GptKit tensor_parallel(GptKit kit, TensorParallel& tp);

/// Wraps a kit for tensor groups with more ranks than heads of keys and values. Several
/// ranks then have the same head of keys and values, each with its own heads of queries.
/// So there are t/g copies of each such head and of its cache. Only for models that
/// infer: gradients of copies are not summed, so backward throws.
GptKit copy_key_heads(GptKit kit, TensorParallel& tp);

}  // namespace lockstep
