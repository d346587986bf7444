#include "src/parallel/gather_attention.hpp"

namespace lockstep {

// lesson: gather-attention
Tensor GatherAttention::gathered(const Tensor& x) const {
    const Tensor own = keys_and_values(x);
    const MemoryScope scope(device(), MemoryCategory::communication);
    const std::int64_t tokens = x.shape()[0] * group().size();
    const Tensor all = device().empty(own.shape().with_first(tokens), own.dtype());
    group().all_gather(all, own).wait();
    return all;
}

Tensor GatherAttention::do_forward(const Tensor& x, Saved& saved) {
    const Heads queries = attention_heads(x, sizes()).queries;
    const OnlineAttention state = device().begin_attention(queries);
    device().attend(state, with_block(queries, gathered(x)), seeing_all(queries));
    return keep_online_attention(device(), state, x, saved);
}

Tensor GatherAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor& x = saved.at("x");
    const Heads queries = attention_heads(x, sizes()).queries;
    const Tensor dx = device().zeros(x.shape(), x.dtype());
    const Heads d_queries = attention_heads(dx, sizes()).queries;
    const Tensor all = gathered(x);
    const Tensor d_all = zero_block(all);
    device().attend_backward(with_block(d_queries, d_all), with_block(queries, all),
                             begin_backward(device(), dy, sizes(), saved),
                             seeing_all(queries));
    const Tensor d_own = zero_block(all.rows(0, x.shape()[0]));
    group().reduce_scatter(d_own, d_all, Reduction::sum).wait();
    put_keys_and_values(dx, d_own);
    drop_online_attention(saved);
    return dx;
}
// lesson: end

}  // namespace lockstep
