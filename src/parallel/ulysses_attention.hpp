#pragma once

#include "src/comm/communicator.hpp"
#include "src/nn/attention.hpp"

namespace lockstep {

/// Attention over tokens that N ranks share out, by sharing out the heads
/// instead while it lasts: an all-to-all gives each rank all tokens of a/N
/// heads, it attends to them as one device would, and another all-to-all
/// gives each its own tokens back, of all heads (Jacobs et al. 2023,
/// DeepSpeed-Ulysses, 2309.14509, section 3).
///
/// x (s/N, b, 3 a width) holds queries, keys and values of rank r's tokens
/// [r s/N, (r + 1) s/N), as CoreAttention has them; y is (s/N, b, a width).
/// Each rank sends 4 (s/N) b a width (N-1)/N elements forward, a quarter of
/// it for y, and as many backward. Saves what CoreAttention does, of all
/// tokens and a/N heads: (b, a/N, s, s) weights.
class UlyssesAttention : public Module {
  public:
    /// Throws UsageError unless the ranks can share out the heads equally.
    UlyssesAttention(Device& device, Communicator& group,
                     std::int64_t heads, bool causal);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    /// Of `parts` tensors side by side, own tokens of all heads (s/N, b,
    /// parts a width) to all tokens of own heads (s, b, parts a/N width),
    /// and back.
    Tensor to_heads(const Tensor& own_tokens, int parts) const;
    Tensor to_tokens(const Tensor& own_heads, int parts) const;

    Device& device_;
    Communicator& group_;
    CoreAttention attention_;
};

}  // namespace lockstep
