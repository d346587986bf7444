#pragma once

#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// Megatron's sequence parallelism. Outside regions, tensor parallelism keeps the same
/// activations on every rank. Here each rank keeps only s/t tokens, which is enough for
/// norms, sums and dropout: they work token by token. An all-reduce is a reduce-scatter
/// and an all-gather. Here a region ends with the reduce-scatter, and the next region
/// begins with the all-gather (Korthikanti et al. 2022, 2205.05198, section 4.2.2):
///
///     enter   forward: all-gather       backward: reduce-scatter
///     leave   forward: reduce-scatter   backward: all-gather
///
/// The bytes are the same as with all-reduces, and less memory is needed. Layers save
/// only their part of a region's input, and gather the whole input again for the weight's
/// gradient: one more all-gather for each entry, as in the paper. Parameters outside
/// regions see only this rank's tokens, so their gradients are partial.
///
/// Ring self-attention and context parallelism are something else: they shard the
/// sequence within attention, too.
class SequenceParallel : public TensorParallel {
  public:
    using TensorParallel::TensorParallel;

    Arriving enter(const Tensor& x) override;
    Arriving enter_backward(const Tensor& dx) override;
    Tensor leave(const Tensor& partial) override;
    Tensor leave_backward(const Tensor& dy) override;

    bool splits_sequence() const override { return true; }

  private:
    Arriving gathered(const Tensor& part);
    Arriving scattered(const Tensor& whole);
};

}  // namespace lockstep
