#pragma once

#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Attention of this rank's queries to all keys and values. An all-gather collects the
/// keys and values, which are released after use (Grattafiori et al. 2024, Llama 3,
/// 2407.21783, section 3.3.2). Worthwhile if grouped queries make keys and values small.
///
/// With e = (s/N) b g width, each rank sends 2(N-1) e elements in N-1 messages forward.
/// Backward sends twice as many elements: it gathers again and reduce-scatters gradients.
/// While it computes, a rank holds all keys and values (2 N e elements); in backward it
/// also holds their gradients. All messages are exposed. Saves x, y and log_sum_exp.
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
