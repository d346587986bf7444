#pragma once

#include "src/nn/sequential.hpp"

namespace lockstep {

/// softmax(Q K^T / sqrt(width)) V, head by head: attention without the linear layers
/// around it (Vaswani et al. 2017, 1706.03762, section 3.2).
///
/// x (s, b, 3 heads width) holds queries, keys and values side by side, each head by
/// head; y is (s, b, heads width). Where it is causal, position i sees positions up to i;
/// the products are made, and charged, in full. Costs 4 b s^2 heads width flops forward,
/// twice as many backward. Saves x and the softmax's (b, heads, s, s) results, which is
/// what makes long sequences dear; backward holds two more of that size for a moment.
class CoreAttention : public Module {
  public:
    /// Throws UsageError unless there is at least one head.
    CoreAttention(Device& device, std::int64_t heads, bool causal);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    /// Columns of one of the three, head by head.
    Heads part_of(const Tensor& x, int part) const;

    Device& device_;
    std::int64_t heads_;
    bool causal_;
};

/// Multi-head self-attention: x (s, b, hidden) gives y of the same shape.
///
///     x -> c_attn (s, b, 3 hidden) -> CoreAttention (s, b, hidden) -> c_proj
///
/// Parameters: c_attn.weight (3 hidden, hidden): rows of the queries, the keys, the
/// values, each head by head; c_attn.bias, c_proj.weight (hidden, hidden), c_proj.bias.
/// Throws UsageError unless heads divide hidden.
std::unique_ptr<Sequential> make_attention(const ParameterInit& init, std::int64_t hidden,
                                           std::int64_t heads, bool causal);

/// Throws UsageError unless as many heads can share `hidden`.
void require_heads(const std::string& layer, std::int64_t hidden, std::int64_t heads);

}  // namespace lockstep
