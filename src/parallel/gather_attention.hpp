#pragma once

#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Attention of own queries to all keys and values, which an all-gather brings together
/// for as long as it lasts (Grattafiori et al. 2024, Llama 3, 2407.21783, section 3.3.2).
/// Simple, and worth it where grouped queries make keys and values small.
///
/// With e = (s/N) b g width, each rank sends 2(N-1) e elements in N-1 messages forward,
/// and twice as much backward: it gathers again, and reduce-scatters the gradients. Holds
/// keys and values of the whole sequence, 2 N e elements, while it computes, and their
/// gradients backward. Nothing hides the messages. Saves x, y and log_sum_exp.
class GatherAttention : public ContextAttention {
  public:
    using ContextAttention::ContextAttention;

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    /// Keys and values of all ranks' tokens, (s, b, 2 g width).
    Tensor gathered(const Tensor& x) const;
};

}  // namespace lockstep
