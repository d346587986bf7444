#pragma once

#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Ring Self-Attention (Li et al. 2021, Sequence Parallelism, 2105.13120, section 3.2):
/// each rank has the queries of its tokens. Keys travel once around the ring of N ranks;
/// then each rank has all scores of its queries. After the softmax, values travel once
/// around; then each rank has its output.
///
/// Holds and saves weights (b, a, s/N, s), 1/N of what one device would hold. But their
/// number still grows with the square of s. Forward also holds the scores for a short
/// time; backward holds the gradients of weights and scores, and the gradient of all keys
/// or of all values, (s, b, g width). All scores are computed, and cost time, even if
/// attention is causal. So all ranks have the same work in any order of tokens.
///
/// With e = (s/N) b g width, each rank sends 2(N-1) e elements forward in 2(N-1)
/// messages. Backward sends 6(N-1) e: values and keys travel around once more, 2(N-1) e.
/// The gradients of all values and of all keys need one all-reduce each, 2(N-1) e; a rank
/// then keeps its own part. Both passes together send 8(N-1) e. (A reduce-scatter would
/// send half of an all-reduce.)
///
/// Differs: in the paper keys have the same number of heads as queries, there are no
/// causal masks, and a rank computes after each hop; here it computes during the hop.
class RingSelfAttention : public ContextAttention {
  public:
    using ContextAttention::ContextAttention;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    /// destination = this rank's rows of weights^T times `rows`, summed over the ranks.
    void reduce_own(const Heads& destination, const Tensor& weights, const Heads& rows,
                    double factor) const;
};

}  // namespace lockstep
