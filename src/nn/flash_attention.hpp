#pragma once

#include "src/nn/attention.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

// All attentions by the online softmax have this in common, whoever else's keys they saw.

/// Ends its forward: keeps in `saved` what backward needs, x, y and a number a row and
/// head, log_sum_exp (b, a, m); gives y.
Tensor keep_online_attention(Device& device, const OnlineAttention& state,
                             const Tensor& x, Saved& saved);
/// Begins a backward, and ends it.
AttentionBackward begin_backward(Device& device, const Tensor& dy,
                                 const AttentionSizes& sizes, const Saved& saved);
void drop_online_attention(Saved& saved);

/// Computes what CoreAttention does, without its weights in memory (Dao et al. 2022,
/// FlashAttention, 2205.14135, section 3): forward keeps x, y and a number a row and
/// head, log_sum_exp (b, a, s), from which backward makes the weights again, block by
/// block.
///
/// Costs, a head and sequence, 4 width flops for each pair of a query and a key that it
/// sees, 10 width backward, beside the softmax; causal attention sees half of them. Heads
/// are up to Device::kMostHeadWidth wide.
class FlashAttention : public Module {
  public:
    /// Tokens are in the order in which they are dealt to `ranks` ranks, one rank's
    /// behind the other's. Throws UsageError for heads that do not fit each other.
    FlashAttention(Device& device, const AttentionSizes& sizes,
                   TokenOrder order = TokenOrder::contiguous, int ranks = 1);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;
    AttentionOptions options(const AttentionHeads& heads) const;

    Device& device_;
    AttentionSizes sizes_;
    TokenDeal deal_;
};

}  // namespace lockstep
