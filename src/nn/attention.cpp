#include "src/nn/attention.hpp"

#include <cmath>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/nn/linear.hpp"

namespace lockstep {

CoreAttention::CoreAttention(Device& device, std::int64_t heads, bool causal)
    : device_(device), heads_(heads), causal_(causal) {
    require(heads > 0,
            [&] { return fmt::format("attention with {} heads; it needs one", heads); });
}

Heads CoreAttention::part_of(const Tensor& x, int part) const {
    const std::int64_t columns = x.shape().columns();
    require(x.shape().dimensions() == 3 && columns % (3 * heads_) == 0, [&] {
        return fmt::format(
            "attention got x of shape {}; (sequence, batch, columns) is expected, with "
            "columns for the queries, keys and values of {} heads",
            x.shape().text(), heads_);
    });
    return {x, heads_, columns / 3 / heads_, part * columns / 3};
}

// P = softmax(Q K^T / sqrt(width)), y = P V, of each head
Tensor CoreAttention::do_forward(const Tensor& x, Saved& saved) {
    const Heads queries = part_of(x, 0), keys = part_of(x, 1), values = part_of(x, 2);
    const double factor = 1 / std::sqrt(static_cast<double>(queries.width));
    const Tensor weights = device_.softmax(device_.head_products(queries, keys, factor),
                                           {.causal = causal_});
    saved.keep("x", x);
    saved.keep("weights", weights);
    return device_.head_sums(weights, values);
}

// dV = P^T dy, dP = dy V^T, dS = softmax'(dP), dQ = dS K / sqrt(width),
// dK = dS^T Q / sqrt(width)
Tensor CoreAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const Tensor &x = saved.at("x"), &weights = saved.at("weights");
    const Heads queries = part_of(x, 0), keys = part_of(x, 1), values = part_of(x, 2);
    const double factor = 1 / std::sqrt(static_cast<double>(queries.width));
    const Heads gradient{dy, heads_, values.width, 0};
    Tensor dx = device_.zeros(x.shape(), x.dtype());
    device_.add_head_sums(part_of(dx, 2), weights, gradient, {.transpose = true});
    Tensor d_scores = device_.head_products(gradient, values);
    d_scores = device_.softmax_backward(weights, d_scores);
    device_.add_head_sums(part_of(dx, 0), d_scores, keys, {.factor = factor});
    device_.add_head_sums(part_of(dx, 1), d_scores, queries,
                          {.transpose = true, .factor = factor});
    saved.drop("weights");
    saved.drop("x");
    return dx;
}

void require_heads(const std::string& layer, std::int64_t hidden, std::int64_t heads) {
    require(heads > 0 && hidden > 0 && hidden % heads == 0, [&] {
        return fmt::format(
            "{}: attention of {} heads over {} columns; each head takes as many, so the "
            "first must divide the second",
            layer, heads, hidden);
    });
}

std::unique_ptr<Sequential> make_attention(const ParameterInit& init, std::int64_t hidden,
                                           std::int64_t heads, bool causal) {
    require_heads(init.name, hidden, heads);
    auto attention = std::make_unique<Sequential>();
    attention->add<Linear>(init.child("c_attn"), hidden, 3 * hidden);  // (s, b, 3 h)
    attention->add<CoreAttention>(init.device, heads, causal);         // (s, b, h)
    attention->add<Linear>(init.child("c_proj"), hidden, hidden);      // (s, b, h)
    return attention;
}

}  // namespace lockstep
