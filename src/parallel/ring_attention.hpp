#pragma once

#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Attention whose keys and values travel around a ring of N ranks, block by block, while
/// each rank attends to the block that it has (Liu et al. 2023, Ring Attention,
/// 2310.01889, section 3):
///
///     for each rank's block of keys and values, own first:
///         hand it on, and meanwhile attend to it by the online softmax
///
/// Beside x, holds two blocks of keys and values, the current one and the next, and no
/// scores: it saves x, y and log_sum_exp (b, a, s/N). Backward sends the blocks around
/// again and recomputes the weights. The gradients of a block follow it from rank to
/// rank, and each rank adds its part, until they return to the block's owner. At most
/// three blocks of gradients are held: the current block's, the previous block's, which
/// is being sent, and the one that arrives to be added.
///
/// With e = (s/N) b g width, each rank sends 2(N-1) e elements in N-1 messages forward,
/// and 2(N-1) e + 2N e in 2N-1 messages backward: the gradients take one more hop, to the
/// owner. (If there is only one rank, it sends nothing.) Each rank computes the pairs
/// that its queries see. If causal and contiguous, rank r computes those of r + 1/2
/// blocks; in zigzag order all ranks compute the same number.
class RingAttention : public ContextAttention {
  public:
    using ContextAttention::ContextAttention;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
};

}  // namespace lockstep
