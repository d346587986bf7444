#pragma once

#include "src/nn/attention.hpp"
#include "src/nn/token_deal.hpp"

namespace lockstep {

// All attention with the online softmax uses these functions, whichever rank has keys.

/// Ends a forward: keeps x, y and log_sum_exp in `saved` for backward. log_sum_exp
/// (b, a, m) has one number per row and head. Returns y.
Tensor keep_online_attention(Device& device, const OnlineAttention& state,
                             const Tensor& x, Saved& saved);
/// Begins a backward. At its end, drop_online_attention() drops what forward kept.
AttentionBackward begin_backward(Device& device, const Tensor& dy,
                                 const AttentionSizes& sizes, const Saved& saved);
void drop_online_attention(Saved& saved);

/// Computes the same as CoreAttention, without storing the weights (Dao et al. 2022,
/// FlashAttention, 2205.14135, section 3). Forward keeps x, y and log_sum_exp (b, a, s),
/// with one number per row and head. Backward recomputes the weights from these tensors,
/// block by block.
///
/// Without the softmax, a head costs 4 width flops forward and 10 width flops backward
/// for each query and each key that the query sees. Causal attention sees half of the
/// pairs. Heads are at most Device::kMostHeadWidth wide.
class FlashAttention : public Module {
  public:
    /// Tokens are in the order of their distribution to `ranks` ranks, rank 0's tokens
    /// first. Throws UsageError if require_heads() does.
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
