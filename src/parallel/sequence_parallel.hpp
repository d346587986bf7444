#pragma once

#include "src/parallel/tensor_parallel.hpp"

namespace lockstep {

/// Megatron's sequence parallelism: outside its regions tensor parallelism keeps the same
/// activations on every rank; here each rank keeps s/t of the sequence instead, since
/// norms, sums and dropout work token by token. An all-reduce is a reduce-scatter and an
/// all-gather; leaving a region now does the one, and entering the next the other
/// (Korthikanti et al. 2022, 2205.05198, section 4.2.2):
///
///     enter   forward: all-gather       backward: reduce-scatter
///     leave   forward: reduce-scatter   backward: all-gather
///
/// It sends the same bytes and takes less memory. Layers save their part of
/// what enters, not the whole, and gather it again for the weight's
/// gradient: one all-gather more for each entry, as in the paper. Parameters outside
/// regions have seen this rank's tokens only, so that their gradients are partial.
///
/// Not to be confused with ring self-attention or context parallelism,
/// which split the sequence within attention too.
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
