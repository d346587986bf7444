#pragma once

#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Ring Self-Attention (Li et al. 2021, Sequence Parallelism, 2105.13120,
/// section 3.2): each rank has the queries of its tokens. Keys travel once
/// round the ring of N ranks, and it has a whole row block of scores; after
/// the softmax values travel once round, and it has the output.
///
/// Holds and saves weights (b, a, s/N, s): s^2/N of them, N times fewer than one device,
/// but still with the square of the sequence. Forward holds the scores beside them for a
/// moment, backward the gradients of both, and the gradient of all keys, or values,
/// (s, b, g width). Scores are made, and charged, in full, causal or not, so no order of
/// tokens balances it: they may be dealt in any.
///
/// With e = (s/N) b g width, each rank sends 2(N-1) e elements forward in
/// 2(N-1) messages. Backward takes 6(N-1) e: values and keys once round
/// again, 2(N-1), and an all-reduce of each of the gradients of all values
/// and all keys, 2(N-1) each, of which it then keeps its own part: 8(N-1) e
/// in all. (A reduce-scatter would do with half of those.)
///
/// Differs: the paper has as many heads of keys as of queries, no causal
/// masks, and computes after each hop; here a hop is under way meanwhile.
class RingSelfAttention : public ContextAttention {
  public:
    using ContextAttention::ContextAttention;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    /// destination = own rows of the sum over all ranks of weights^T rows.
    void reduce_own(const Heads& destination, const Tensor& weights, const Heads& rows,
                    double factor) const;
};

}  // namespace lockstep
