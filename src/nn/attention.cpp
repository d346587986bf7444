#include "src/nn/attention.hpp"

#include <cmath>

#include "src/core/require.hpp"

namespace lockstep {

void require_heads(const std::string& layer, const AttentionSizes& sizes) {
    require(sizes.heads > 0, "{} has {} heads; at least 1 is expected", layer,
            sizes.heads);
    require(sizes.kv_heads >= 0 && sizes.heads % sizes.key_heads() == 0,
            "{} has {} heads of keys and values for {} of queries; the first number must "
            "divide the second, or be 0 for the same number",
            layer, sizes.kv_heads, sizes.heads);
}

void require_heads(const std::string& layer, std::int64_t hidden,
                   const AttentionSizes& sizes) {
    require(sizes.heads > 0 && hidden > 0 && hidden % sizes.heads == 0,
            "{}: attention of {} heads over {} columns; the number of heads must divide "
            "the number of columns",
            layer, sizes.heads, hidden);
    require_heads(layer + ": attention", sizes);
}

AttentionHeads attention_heads(const Tensor& x, const AttentionSizes& sizes) {
    const std::int64_t a = sizes.heads, g = sizes.key_heads();
    const std::int64_t columns = x.shape().columns();
    require(x.shape().dimensions() == 3 && columns % (a + 2 * g) == 0,
            "attention got x of shape {}; (sequence, batch, columns) is expected, with "
            "queries of {} heads and keys and values of {}: a multiple of {} columns",
            x.shape(), a, g, a + 2 * g);
    const std::int64_t width = columns / (a + 2 * g);
    return {{x, a, width, 0}, {x, g, width, a * width}, {x, g, width, (a + g) * width}};
}

double score_factor(std::int64_t width) {
    return 1 / std::sqrt(static_cast<double>(width));
}

CoreAttention::CoreAttention(Device& device, const AttentionSizes& sizes)
    : device_(device), sizes_(sizes) {
    require_heads("attention", sizes);
}

// P = softmax(Q K^T / sqrt(width)), y = P V, of each head
Tensor CoreAttention::do_forward(const Tensor& x, Saved& saved) {
    const AttentionHeads own = attention_heads(x, sizes_);
    const Tensor scores =
        device_.head_products(own.queries, own.keys, score_factor(own.queries.width));
    const Tensor weights = device_.softmax(scores, {.causal = sizes_.causal});
    saved.keep("x", x);
    saved.keep("weights", weights);
    return device_.head_sums(weights, own.values);
}

// dV = P^T dy, dP = dy V^T, dS = softmax'(dP), dQ = dS K / sqrt(width),
// dK = dS^T Q / sqrt(width)
Tensor CoreAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor &x = saved.at("x"), &weights = saved.at("weights");
    const AttentionHeads own = attention_heads(x, sizes_);
    const Heads gradient{dy, sizes_.heads, own.queries.width, 0};
    Tensor dx = device_.zeros(x.shape(), x.dtype());
    const AttentionHeads d = attention_heads(dx, sizes_);
    device_.add_head_sums(d.values, weights, gradient, {.transpose = true});
    Tensor d_scores = device_.head_products(gradient, own.values);
    d_scores = device_.softmax_backward(weights, d_scores);
    const double factor = score_factor(own.queries.width);
    device_.add_head_sums(d.queries, d_scores, own.keys, {.factor = factor});
    device_.add_head_sums(d.keys, d_scores, own.queries,
                          {.transpose = true, .factor = factor});
    saved.drop("weights");
    saved.drop("x");
    return dx;
}

RotaryAttention::RotaryAttention(Device& device, const AttentionSizes& sizes,
                                 std::unique_ptr<Module> core, TokenDeal tokens,
                                 std::shared_ptr<const RowPlaces> places)
    : device_(device),
      sizes_(sizes),
      core_(std::move(core)),
      tokens_(tokens),
      places_(std::move(places)) {
    require(core_ != nullptr, "RotaryAttention was given a core that is null");
}

Tensor RotaryAttention::turned(const Tensor& x, const RowPlaces& places,
                               bool back) const {
    const RotaryOptions options{sizes_.rotary_base, back};
    Tensor y = device_.empty(x.shape(), x.dtype());
    device_.copy(y, x);
    const AttentionHeads all = attention_heads(y, sizes_);
    for (const Heads& heads : {all.queries, all.keys})
        if (places)
            device_.rotate_at(heads, heads, *places, options);
        else
            device_.rotate(heads, heads, tokens_.own(x.shape()[0]), options);
    return y;
}

Tensor RotaryAttention::do_forward(const Tensor& x, Saved& saved) {
    const RowPlaces now = saved.keep_state("places", places());
    return core_->forward(turned(x, now, false), saved.child(0));
}

Tensor RotaryAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    return turned(core_->backward_input(dy, saved.child(0)),
                  saved.value<RowPlaces>("places"), true);
}

void RotaryAttention::do_backward_weight(Saved& saved) {
    core_->backward_weight(saved.child(0));
}

Tensor RotaryAttention::do_infer(const Tensor& x, SourceLine at) {
    return core_->infer(turned(x, places(), false), at);
}

}  // namespace lockstep
