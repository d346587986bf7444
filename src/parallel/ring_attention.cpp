#include "src/parallel/ring_attention.hpp"

namespace lockstep {

// lesson: ring-attention
Tensor RingAttention::do_forward(const Tensor& x, Saved& saved) {
    const Heads queries = attention_heads(x, sizes()).queries;
    const OnlineAttention state = device().begin_attention(queries);
    ring().travel(keys_and_values(x), [&](const Tensor& block, int rank) {
        device().attend(state, with_block(queries, block), seeing_rank(queries, rank));
    });
    return keep_online_attention(device(), state, x, saved);
}
// lesson: end

// lesson: ring-attention-backward
Tensor RingAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor& x = saved.at("x");
    const Heads queries = attention_heads(x, sizes()).queries;
    const Tensor dx = device().zeros(x.shape(), x.dtype());
    const Heads d_queries = attention_heads(dx, sizes()).queries;
    const AttentionBackward back = begin_backward(device(), dy, sizes(), saved);

    // The gradients of a block arrive one hop after the block.
    Arriving behind;
    ring().travel(keys_and_values(x), [&](const Tensor& block, int rank) {
        const Tensor d_block = zero_block(block);
        device().attend_backward(with_block(d_queries, d_block),
                                 with_block(queries, block), back,
                                 seeing_rank(queries, rank));
        if (behind.tensor) device().add(d_block, behind.wait());
        behind = ring().hand_on(d_block);
    });
    put_keys_and_values(dx, behind.wait());  // the gradients are back at their owner
    drop_online_attention(saved);
    return dx;
}
// lesson: end

}  // namespace lockstep
