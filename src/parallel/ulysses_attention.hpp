#pragma once

#include <vector>

#include "src/nn/flash_attention.hpp"
#include "src/parallel/context_attention.hpp"

namespace lockstep {

/// Attention over tokens that are sharded over N ranks. An all-to-all gives each rank all
/// tokens of a/N heads. The rank attends to these tokens as one device does. Another
/// all-to-all gives each rank its own tokens back, with all heads (Jacobs et al. 2023,
/// DeepSpeed-Ulysses, 2309.14509, section 3).
///
/// Each rank sends (2 a + 2 g) (s/N) b width (N-1)/N elements in 2 (N-1) messages in
/// forward, and as many in backward. If a = g, each pass sends 4 (s/N) b h (N-1)/N
/// elements. Computes and saves the same as FlashAttention with all tokens and a/N heads.
///
/// Differs: queries, keys and values are sent in one all-to-all; the paper has three,
/// with the same bytes in more messages.
class UlyssesAttention : public ContextAttention {
  public:
    /// Throws UsageError unless the ranks divide the heads of queries and the heads of
    /// keys.
    UlyssesAttention(Device& device, Communicator& group, const AttentionSizes& sizes,
                     TokenOrder order = TokenOrder::contiguous);

  private:
    Tensor do_forward(const Tensor& x, Saved& saved) override;
    Tensor do_backward_input(const Tensor& dy, Saved& saved) override;

    /// The number of columns, over all heads, of each of several tensors side by side.
    using Parts = std::vector<std::int64_t>;
    Parts parts_of_x(std::int64_t width) const;
    Parts parts_of_y(std::int64_t width) const;

    /// to_heads makes (s, b, columns/N), all tokens of this rank's heads, from (s/N, b,
    /// columns), this rank's tokens of all heads; to_tokens does the opposite.
    Tensor to_heads(const Tensor& own_tokens, const Parts& parts) const;
    Tensor to_tokens(const Tensor& own_heads, const Parts& parts) const;

    FlashAttention attention_;
};

}  // namespace lockstep
