#include "src/parallel/ring_self_attention.hpp"

#include "src/parallel/ring_products.hpp"

namespace lockstep {

// lesson: ring-self-attention
Tensor RingSelfAttention::do_forward(const Tensor& x, Saved& saved) {
    const AttentionHeads own = attention_heads(x, sizes());
    const AttentionOptions see = seeing_all(own.queries);
    const Tensor weights = device().softmax(
        ring_products(device(), ring(), own.queries, own.keys, see.factor),
        {see.causal, see.queries, see.keys});
    const std::int64_t columns = own.queries.heads * own.queries.width;
    const Tensor y = device().zeros(x.shape().with_last(columns), x.dtype());
    add_ring_sums(device(), ring(), heads_of_result(y), weights, own.values, 1);
    saved.keep("x", x);
    saved.keep("weights", weights);
    return y;
}
// lesson: end

// lesson: ring-self-attention-backward
Tensor RingSelfAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor &x = saved.at("x"), &weights = saved.at("weights");
    const AttentionHeads own = attention_heads(x, sizes());
    const double factor = score_factor(own.queries.width);
    const Heads gradient = heads_of_result(dy);
    const Tensor dx = device().zeros(x.shape(), x.dtype());
    const AttentionHeads d = attention_heads(dx, sizes());

    reduce_own(d.values, weights, gradient, 1);
    const Tensor d_scores = device().softmax_backward(
        weights, ring_products(device(), ring(), gradient, own.values, 1));
    add_ring_sums(device(), ring(), d.queries, d_scores, own.keys, factor);
    reduce_own(d.keys, d_scores, own.queries, factor);
    saved.drop("weights");
    saved.drop("x");
    return dx;
}

// Every rank has terms of the gradient of all keys, or of all values.
void RingSelfAttention::reduce_own(const Heads& destination, const Tensor& weights,
                                   const Heads& rows, double factor) const {
    const std::int64_t heads = destination.heads, width = destination.width;
    const std::int64_t share = rows.rows();
    const Shape shape{ring().size() * share, rows.batches(), heads * width};
    const MemoryScope scope(device(), MemoryCategory::communication);
    const Tensor all = device().zeros(shape, weights.dtype());
    device().add_head_sums({all, heads, width, 0}, weights, rows,
                           {.transpose = true, .factor = factor});
    group().all_reduce(all, Reduction::sum).wait();
    device().copy_columns(destination.tensor, destination.first,
                          all.rows(ring().rank() * share, share), 0, heads * width);
}
// lesson: end

}  // namespace lockstep
