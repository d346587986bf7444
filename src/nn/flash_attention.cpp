#include "src/nn/flash_attention.hpp"

#include "src/core/require.hpp"

namespace lockstep {

Tensor keep_online_attention(Device& device, const OnlineAttention& state,
                             const Tensor& x, Saved& saved) {
    saved.keep("log_sum_exp", device.finish_attention(state));
    saved.keep("x", x);
    Tensor y = state.y;
    if (y.dtype() != x.dtype()) {
        y = device.empty(y.shape(), x.dtype());
        device.cast(y, state.y);
    }
    saved.keep("y", y);
    return y;
}

AttentionBackward begin_backward(Device& device, const Tensor& dy,
                                 const AttentionSizes& sizes, const Saved& saved) {
    const auto heads_of = [&](const Tensor& y) {
        return Heads{y, sizes.heads, y.shape().columns() / sizes.heads, 0};
    };
    return {dy, saved.at("log_sum_exp"),
            device.head_row_products(heads_of(dy), heads_of(saved.at("y")))};
}

void drop_online_attention(Saved& saved) {
    for (const char* name : {"log_sum_exp", "x", "y"})
        saved.drop(name);
}

FlashAttention::FlashAttention(Device& device, const AttentionSizes& sizes,
                               TokenOrder order, int ranks)
    : device_(device), sizes_(sizes), deal_{order, ranks, 0} {
    require_heads("attention", sizes);
    require(ranks > 0, "attention over the tokens of {} ranks; one is expected at least",
            ranks);
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
    return keep_online_attention(device_, state, x, saved);
}

Tensor FlashAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor& x = saved.at("x");
    const AttentionHeads own = attention_heads(x, sizes_);
    Tensor dx = device_.zeros(x.shape(), x.dtype());
    device_.attend_backward(attention_heads(dx, sizes_), own,
                            begin_backward(device_, dy, sizes_, saved), options(own));
    drop_online_attention(saved);
    return dx;
}

}  // namespace lockstep
