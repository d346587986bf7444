#include "src/nn/latent_attention.hpp"

#include <array>

#include "src/core/require.hpp"
#include "src/nn/attention.hpp"

namespace lockstep {

namespace {

constexpr bool kBias = false;

// The place of each part among the children of Saved.
constexpr std::size_t kQa = 0, kQNorm = 1, kQb = 2, kKvA = 3, kKvNorm = 4, kKvB = 5,
                      kO = 6;

const LatentSizes& sound(const ParameterInit& init, std::int64_t heads,
                         const LatentSizes& sizes) {
    require(heads > 0 && sizes.query_rank > 0 && sizes.key_rank > 0 && sizes.width > 0 &&
                sizes.rotary > 0 && sizes.value > 0,
            "{}: latent attention of {} heads, with ranks {} and {}, and heads of {}, {} "
            "and {} columns; all must be positive",
            init.name, heads, sizes.query_rank, sizes.key_rank, sizes.width, sizes.rotary,
            sizes.value);
    return sizes;
}

}  // namespace

std::int64_t latent_parameters(std::int64_t hidden, std::int64_t heads,
                               const LatentSizes& sizes) {
    const std::int64_t rank = sizes.key_rank;
    return (hidden + 1 + heads * (sizes.width + sizes.rotary)) * sizes.query_rank +
           hidden * (rank + sizes.rotary) + rank +
           rank * heads * (sizes.width + sizes.value) + heads * sizes.value * hidden;
}

LatentAttention::LatentAttention(const ParameterInit& init, std::int64_t hidden,
                                 std::int64_t heads, const LatentSizes& sizes,
                                 double rotary_base, double epsilon)
    : device_(init.device),
      heads_(heads),
      sizes_(sound(init, heads, sizes)),
      rotary_base_(rotary_base),
      q_a_(init.child("q_a_proj"), hidden, sizes.query_rank, kBias),
      q_norm_(init.child("q_a_layernorm"), sizes.query_rank, epsilon),
      q_b_(init.child("q_b_proj"), sizes.query_rank, heads * (sizes.width + sizes.rotary),
           kBias),
      kv_a_(init.child("kv_a_proj_with_mqa"), hidden, sizes.key_rank + sizes.rotary,
            kBias),
      kv_norm_(init.child("kv_a_layernorm"), sizes.key_rank, epsilon),
      kv_b_(init.child("kv_b_proj"), sizes.key_rank, heads * (sizes.width + sizes.value),
            kBias),
      o_(init.child("o_proj"), heads * sizes.value, hidden, kBias) {}

void LatentAttention::each_part(FunctionRef<void(Module&)> visit) {
    for (Module* part :
         std::array<Module*, 7>{&q_a_, &q_norm_, &q_b_, &kv_a_, &kv_norm_, &kv_b_, &o_})
        visit(*part);
}

std::vector<Parameter*> LatentAttention::parameters() {
    std::vector<Parameter*> all;
    each_part([&](Module& part) {
        for (Parameter* parameter : part.parameters())
            all.push_back(parameter);
    });
    return all;
}

void LatentAttention::set_input_gradient(bool needed) {
    Module::set_input_gradient(needed);
    q_a_.set_input_gradient(needed);
    kv_a_.set_input_gradient(needed);
}

LatentAttention::Views LatentAttention::of_queries(const Tensor& q) const {
    return {{q, heads_, sizes_.width, 0},
            {q, heads_, sizes_.rotary, heads_ * sizes_.width},
            {}};
}

LatentAttention::Views LatentAttention::of_keys(const Tensor& kv,
                                                const Tensor& down) const {
    return {{kv, heads_, sizes_.width, 0},
            {down, 1, sizes_.rotary, sizes_.key_rank},
            {kv, heads_, sizes_.value, heads_ * sizes_.width}};
}

Tensor LatentAttention::zeros_like(const Tensor& tensor, SourceLine at) const {
    return device_.zeros(tensor.shape(), tensor.dtype(), at);
}

void LatentAttention::turn(const Heads& heads, bool back, SourceLine at) const {
    device_.rotate(heads, heads, {}, {rotary_base_, back}, at);
}

// lesson: latent-attention
Tensor LatentAttention::do_forward(const Tensor& x, Saved& saved) {
    const SourceLine at = saved.line();
    const Tensor q = q_b_.forward(
        q_norm_.forward(q_a_.forward(x, saved.child(kQa)), saved.child(kQNorm)),
        saved.child(kQb));
    const Tensor down = kv_a_.forward(x, saved.child(kKvA));
    const Tensor latent =
        device_.empty(down.shape().with_last(sizes_.key_rank), x.dtype(), at);
    device_.copy_columns(latent, 0, down, 0, sizes_.key_rank, at);
    const Tensor kv =
        kv_b_.forward(kv_norm_.forward(latent, saved.child(kKvNorm)), saved.child(kKvB));
    const Views queries = of_queries(q), keys = of_keys(kv, down);
    turn(queries.turned, false, at);
    turn(keys.turned, false, at);

    const double factor = score_factor(sizes_.width + sizes_.rotary);
    const Tensor scores = device_.head_products(queries.plain, keys.plain, factor, at);
    device_.add(scores, device_.head_products(queries.turned, keys.turned, factor, at), 1,
                at);
    const Tensor weights = device_.softmax(scores, {.causal = true}, at);
    saved.keep("q", q);
    saved.keep("kv", kv);
    saved.keep("down", down);
    saved.keep("weights", weights);
    return o_.forward(device_.head_sums(weights, keys.values, at), saved.child(kO));
}

Tensor LatentAttention::do_backward_input(const Tensor& dy, Saved& saved) {
    const SourceLine at = saved.line();
    const Tensor d_q = zeros_like(saved.at("q"), at);
    const Tensor d_kv = zeros_like(saved.at("kv"), at);
    const Tensor d_down = zeros_like(saved.at("down"), at);
    backward_core(o_.backward_input(dy, saved.child(kO)), of_queries(d_q),
                  of_keys(d_kv, d_down), saved);
    for (const char* name : {"q", "kv", "down", "weights"})
        saved.drop(name);

    const Tensor d_latent = kv_norm_.backward_input(
        kv_b_.backward_input(d_kv, saved.child(kKvB)), saved.child(kKvNorm));
    device_.copy_columns(d_down, 0, d_latent, 0, sizes_.key_rank, at);
    Tensor dx = kv_a_.backward_input(d_down, saved.child(kKvA));
    const Tensor dx_of_q = q_a_.backward_input(
        q_norm_.backward_input(q_b_.backward_input(d_q, saved.child(kQb)),
                               saved.child(kQNorm)),
        saved.child(kQa));
    if (dx) device_.add(dx, dx_of_q, 1, at);
    return dx;
}

// With P the weights and S the scores: dV = P^T dy, dS = softmax'(dy V^T). Each part of a
// query gets dS times that part of the key; each part of a key gets dS^T times that part
// of the query.
void LatentAttention::backward_core(const Tensor& d_sums, const Views& d_queries,
                                    const Views& d_keys, Saved& saved) const {
    const SourceLine at = saved.line();
    const Views queries = of_queries(saved.at("q"));
    const Views keys = of_keys(saved.at("kv"), saved.at("down"));
    const Heads d_values{d_sums, heads_, sizes_.value, 0};
    const Tensor& weights = saved.at("weights");
    device_.add_head_sums(d_keys.values, weights, d_values, {.transpose = true}, at);
    const Tensor d_scores = device_.softmax_backward(
        weights, device_.head_products(d_values, keys.values, 1, at), at);
    const double factor = score_factor(sizes_.width + sizes_.rotary);
    const HeadSumOptions of_query{.factor = factor};
    const HeadSumOptions of_key{.transpose = true, .factor = factor};
    device_.add_head_sums(d_queries.plain, d_scores, keys.plain, of_query, at);
    device_.add_head_sums(d_queries.turned, d_scores, keys.turned, of_query, at);
    device_.add_head_sums(d_keys.plain, d_scores, queries.plain, of_key, at);
    device_.add_head_sums(d_keys.turned, d_scores, queries.turned, of_key, at);
    turn(d_queries.turned, true, at);
    turn(d_keys.turned, true, at);
}
// lesson: end

void LatentAttention::do_backward_weight(Saved& saved) {
    std::size_t child = kQa;
    each_part([&](Module& part) { part.backward_weight(saved.child(child++)); });
}

}  // namespace lockstep
