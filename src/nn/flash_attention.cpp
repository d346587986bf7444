#include "src/nn/flash_attention.hpp"

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

FlashAttention::FlashAttention(Device& device, const AttentionSizes& sizes,
                               TokenOrder order, int ranks)
    : device_(device), sizes_(sizes), deal_{order, ranks, 0} {
    require_heads("attention", sizes);
    require(ranks > 0, [&] {
        return fmt::format(
            "attention over the tokens of {} ranks; one is expected at least", ranks);
    });
}

AttentionOptions FlashAttention::options(const AttentionHeads& heads) const {
    const std::int64_t share = deal_.share_of(heads.queries.rows(), "attention");
    const TokenRows tokens = deal_.all(share);
    return {score_factor(heads.queries.width), sizes_.causal, tokens, tokens};
}

Tensor FlashAttention::do_forward(const Tensor& x, Saved& saved) {
    const AttentionHeads own = attention_heads(x, sizes_);
    const OnlineAttention state = device_.begin_attention(own.queries);
    device_.attend(state, own, options(own));
    saved.keep("log_sum_exp", device_.finish_attention(state));
    saved.keep("x", x);
    saved.keep("y", state.y);
    return state.y;
}

Tensor FlashAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor& x = saved.at("x");
    const AttentionHeads own = attention_heads(x, sizes_);
    const std::int64_t width = own.queries.width;
    const Tensor dx = device_.zeros(x.shape(), x.dtype());
    const Tensor dy_y = device_.head_row_products({dy, sizes_.heads, width},
                                                  {saved.at("y"), sizes_.heads, width});
    device_.attend_backward(attention_heads(dx, sizes_), own,
                            {dy, saved.at("log_sum_exp"), dy_y}, options(own));
    saved.drop("log_sum_exp");
    saved.drop("y");
    saved.drop("x");
    return dx;
}

}  // namespace lockstep
