#pragma once

#include <vector>

#include "src/nn/flash_attention.hpp"
#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Attention over tokens that N ranks share out, by sharing out the heads instead while
/// it lasts: an all-to-all gives each rank all tokens of a/N heads, it attends to them as
/// one device would, and another all-to-all gives each its own tokens back, of all heads
/// (Jacobs et al. 2023, DeepSpeed-Ulysses, 2309.14509, section 3).
///
/// Each rank sends (2 a + 2 g) (s/N) b width (N-1)/N elements in 2 (N-1) messages
/// forward, and as many backward: 4 (s/N) b h (N-1)/N where a = g. Computes what
/// FlashAttention does with all tokens and a/N heads, and saves as much.
///
/// Differs: queries, keys and values go in one all-to-all where the paper
/// has three, the same bytes in fewer messages.
class UlyssesAttention : public ContextAttention {
  public:
    /// Throws UsageError unless the ranks can share out the heads equally,
    /// of queries and of keys.
    UlyssesAttention(Device& device, Communicator& group, const AttentionSizes& sizes,
                     TokenOrder order = TokenOrder::contiguous);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    /// Tensors that lie side by side, each of that many columns of all heads.
    using Parts = std::vector<std::int64_t>;
    Parts parts_of_x(std::int64_t width) const;
    Parts parts_of_y(std::int64_t width) const;

    /// Own tokens of all heads (s/N, b, columns) to all tokens of own heads
    /// (s, b, columns/N), and back.
    Tensor to_heads(const Tensor& own_tokens, const Parts& parts) const;
    Tensor to_tokens(const Tensor& own_heads, const Parts& parts) const;

    FlashAttention attention_;
};

}  // namespace lockstep
