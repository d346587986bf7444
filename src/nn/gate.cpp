#include "src/nn/gate.hpp"

#include <cmath>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

void require_fit(const std::string& who, std::int64_t experts,
                 const GateOptions& options) {
    const std::int64_t k = options.chosen, groups = options.groups;
    require(experts > 0, "{}: {} experts; one is expected at least", who, experts);
    require(k >= 1 && k <= experts,
            "{}: a token chooses {} of {} experts; from 1 to all of them are expected",
            who, k, experts);
    require(options.form != GateForm::top_k_then_softmax || !options.normalized,
            "{}: the softmax of the chosen logits is normalized already; leave "
            "normalized off",
            who);
    require(groups >= 1 && groups <= ColumnGroups::kMost && experts % groups == 0,
            "{}: {} experts cannot be split into {} equal groups; at most {} groups are "
            "allowed",
            who, experts, groups, ColumnGroups::kMost);
    const std::int64_t chosen = options.chosen_groups;
    require(
        chosen >= 1 && chosen <= groups && k <= chosen * (experts / groups),
        "{}: a token cannot choose {} experts from {} of {} groups with {} experts each",
        who, k, chosen, groups, experts / groups);
    require(groups == 1 || k % chosen == 0,
            "{}: a token chooses {} experts from {} groups; a multiple of {} is expected",
            who, k, chosen, chosen);
    require(options.balance >= 0 && options.z >= 0 && options.noise >= 0,
            "{}: balance is {}, z is {} and noise is {}; none may be negative", who,
            options.balance, options.z, options.noise);
    require(std::isfinite(options.factor) && options.factor > 0,
            "{}: weights are multiplied by {}; a number above 0 is expected", who,
            options.factor);
}

}  // namespace

Gate::Gate(const ParameterInit& init, std::int64_t experts, const GateOptions& options)
    : device_(init.device),
      experts_(experts),
      options_(options),
      noise_(init.seed, init.child("noise").name),
      bias_name_(init.child("e_score_correction_bias").name) {
    require_fit(init.name, experts, options);
    if (!options.biased) return;
    const MemoryScope scope(device_, MemoryCategory::parameters);
    bias_ = device_.zeros({experts}, computed_in(init.dtype));
}

// lesson: gate
Gating Gate::choose(const Tensor& logits, const std::optional<RandomPart>& noise,
                    SourceLine at) const {
    Gating gating;
    gating.logits = noise && options_.noise > 0 ? with_noise(logits, *noise, at) : logits;
    if (options_.form == GateForm::sigmoid)
        gating.scores = device_.sigmoid(gating.logits, at);
    else if (!softmax_is_last() || options_.balance > 0)
        gating.scores = device_.softmax(gating.logits, {}, at);
    pick(gating, at);
    weigh(gating, at);
    return gating;
}

// Picks the k largest scores (or logits) of each token: (N, k) of (N, E).
void Gate::pick(Gating& gating, SourceLine at) const {
    const Tensor& among = softmax_is_last() ? gating.logits : gating.scores;
    Tensor biased = among;
    if (bias_) {
        biased = device_.empty(among.shape(), among.dtype(), at);
        device_.copy(biased, among, at);
        device_.add_bias(biased, bias_, at);
    }
    const Shape shape{among.shape().matrix_rows(), options_.chosen};
    gating.ids = device_.empty(shape, DType::i32, at);
    gating.picked = device_.empty(shape, among.dtype(), at);
    ColumnGroups groups;
    if (options_.groups > 1)
        groups = {options_.groups, options_.chosen_groups,
                  options_.chosen / options_.chosen_groups};
    device_.top_k(gating.picked, gating.ids, biased, options_.chosen, groups, at);
    if (bias_) device_.take_columns(gating.picked, among, gating.ids, at);
}

void Gate::weigh(Gating& gating, SourceLine at) const {
    gating.unscaled = softmax_is_last()     ? device_.softmax(gating.picked, {}, at)
                      : options_.normalized ? device_.normalize_rows(gating.picked, at)
                                            : gating.picked;
    gating.weights = gating.unscaled;
    if (options_.factor == 1) return;
    gating.weights = device_.empty(gating.unscaled.shape(), gating.unscaled.dtype(), at);
    device_.copy(gating.weights, gating.unscaled, at);
    device_.scale(gating.weights, options_.factor, at);
}
// lesson: end

Tensor Gate::with_noise(const Tensor& logits, const RandomPart& part,
                        SourceLine at) const {
    Tensor x = device_.empty(logits.shape(), logits.dtype(), at);
    device_.random_normal(x, noise_, 0, options_.noise, part, at);
    device_.add(x, logits, 1, at);
    return x;
}

double Gate::balance_factor(const Gating& gating, double weight) const {
    return weight * options_.balance * static_cast<double>(experts_) /
           static_cast<double>(gating.logits.shape().matrix_rows());
}

// lesson: balance
std::vector<Tensor> Gate::losses(Gating& gating, const std::vector<double>& shares,
                                 double weight, SourceLine at) const {
    std::vector<Tensor> losses;
    const std::int64_t tokens = gating.logits.shape().matrix_rows();  // N
    const DType dtype = gating.logits.dtype();
    if (tokens == 0) return losses;  // without tokens there is no mean
    if (options_.balance > 0) {      // alpha E sum_i f_i P_i
        HostTensor f({experts_}, dtype);
        for (std::int64_t i = 0; i < experts_; ++i)
            f.set(i, shares[static_cast<std::size_t>(i)]);
        gating.load = device_.upload(f, at);
        const Tensor p = device_.zeros({experts_}, dtype, at);  // N P
        const bool sigmoid = options_.form == GateForm::sigmoid;
        device_.accumulate_rows(
            p, sigmoid ? device_.normalize_rows(gating.scores, at) : gating.scores, at);
        Tensor& loss = losses.emplace_back(device_.empty({1}, dtype, at));
        device_.row_products(loss, p.reshaped({1, experts_}),
                             gating.load.reshaped({1, experts_}), at);
        device_.scale(loss, balance_factor(gating, weight), at);
    }
    if (options_.z > 0) {  // beta mean(log(sum exp)^2)
        gating.log_sums = device_.log_sum_exp(gating.logits, at);
        Tensor& loss = losses.emplace_back(device_.zeros({1}, dtype, at));
        device_.sum_of_squares(loss, gating.log_sums, at);
        device_.scale(loss, weight * options_.z / static_cast<double>(tokens), at);
    }
    return losses;
}
// lesson: end

// lesson: gate-backward
Tensor Gate::backward(const Gating& gating, const Tensor& d_weights, double weight,
                      SourceLine at) const {
    const Tensor d_among =
        device_.zeros(gating.logits.shape(), gating.logits.dtype(), at);
    device_.add_columns(d_among, d_picked(gating, d_weights, at), gating.ids, at);
    Tensor d_balanced;  // alpha E f_i / N, the same for every token
    if (gating.load) {
        d_balanced = device_.zeros(d_among.shape(), d_among.dtype(), at);
        device_.add_bias(d_balanced, gating.load, at);
        device_.scale(d_balanced, balance_factor(gating, weight), at);
    }

    Tensor d_logits;
    if (softmax_is_last()) {
        d_logits = d_among;
        if (d_balanced)
            device_.add(d_logits, device_.softmax_backward(gating.scores, d_balanced, at),
                        1, at);
    } else if (options_.form == GateForm::sigmoid) {
        if (d_balanced)
            device_.add(d_among,
                        device_.normalize_rows_backward(gating.scores, d_balanced, at), 1,
                        at);
        d_logits = device_.sigmoid_backward(gating.scores, d_among, at);
    } else {
        if (d_balanced) device_.add(d_among, d_balanced, 1, at);
        d_logits = device_.softmax_backward(gating.scores, d_among, at);
    }
    if (gating.log_sums) {  // 2 beta / N log(sum exp) softmax
        const Tensor d_z = device_.softmax(gating.logits, {}, at);
        device_.scale_rows(d_z, gating.log_sums, at);
        const auto tokens = static_cast<double>(gating.logits.shape().matrix_rows());
        device_.add(d_logits, d_z, 2 * weight * options_.z / tokens, at);
    }
    return d_logits;
}

Tensor Gate::d_picked(const Gating& gating, const Tensor& d_weights,
                      SourceLine at) const {
    if (options_.factor != 1) device_.scale(d_weights, options_.factor, at);
    if (softmax_is_last())
        return device_.softmax_backward(gating.unscaled, d_weights, at);
    if (options_.normalized)
        return device_.normalize_rows_backward(gating.picked, d_weights, at);
    return d_weights;
}
// lesson: end

}  // namespace lockstep
