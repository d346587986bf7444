#pragma once

#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Attention by keys and values that travel round a ring of N ranks, block
/// by block, while each rank attends to the block that it has (Liu et al.
/// 2023, Ring Attention, 2310.01889, section 3):
///
///     for each rank's block of keys and values, own first:
///         hand it on, and meanwhile attend to it by the online softmax
///
/// Beside x, holds two blocks of keys and values, that which it attends to and the next,
/// and no scores: it saves x, y and log_sum_exp (b, a, s/N). Backward sends the blocks
/// round again and makes the weights again; the gradients of a block follow it from rank
/// to rank, each adding its part, until they are home: three blocks of gradients are here
/// at most, this one's, the last one's that leaves, and what comes to be added.
///
/// With e = (s/N) b g width, each rank sends 2(N-1) e elements in N-1 messages forward,
/// 2(N-1) e + 2N e in 2N-1 messages backward: the gradients take one hop more, the one
/// home. (One rank alone sends nothing.) Each computes the pairs that its queries see:
/// causal and contiguous, rank r those of r + 1/2 blocks; in zigzag order all as many.
class RingAttention : public ContextAttention {
  public:
    using ContextAttention::ContextAttention;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
};

}  // namespace lockstep
