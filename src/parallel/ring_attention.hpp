#pragma once

#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Attention whose keys and values travel around a ring of N ranks, block by block, while
/// each rank attends to the block that it has (Liu et al. 2023, Ring Attention,
/// 2310.01889, section 3):
///
///     for each rank's block of keys and values, own first:
///         send it to the next rank, and meanwhile attend to it by the online softmax
///
/// Beside x, a rank holds two blocks of keys and values (the current and the next block)
/// and no scores. Saves x, y and log_sum_exp (b, a, s/N). Backward sends the blocks
/// around again and recomputes the weights. The gradients of a block follow the block
/// from rank to rank. Each rank adds its part, until the gradients return to the block's
/// owner. A rank holds at most three blocks of gradients: the current block's, the
/// previous block's (being sent), and the arriving one.
///
/// With e = (s/N) b g width, each rank sends 2(N-1) e elements in N-1 messages forward.
/// Backward needs 2(N-1) e + 2N e elements in 2N-1 messages, because gradients make one
/// more hop, to the owner. (If N = 1, nothing is sent.) Each rank computes the pairs in
/// which its queries see a key. With a causal mask and contiguous order, rank r computes
/// the pairs of r + 1/2 blocks; in zigzag order all ranks compute equally many pairs.
class RingAttention : public ContextAttention {
  public:
    using ContextAttention::ContextAttention;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
};

}  // namespace lockstep
