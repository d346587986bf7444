#include "src/nn/mixture_of_experts.hpp"

#include <cmath>
#include <functional>
#include <utility>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

// The children of Saved. Each portion of the tokens has two children: for its experts,
// and for the portion itself.
constexpr std::size_t kLogits = 0, kShared = 1, kPortions = 2;
std::size_t of_experts(std::size_t portion) {
    return kPortions + 2 * portion;
}
std::size_t of_portion(std::size_t portion) {
    return of_experts(portion) + 1;
}

Experts::Sizes sizes_of_experts(const MixtureOfExperts::Sizes& sizes) {
    return {sizes.hidden, sizes.experts.inner, sizes.experts.count,
            sizes.gated,  sizes.gelu,          sizes.experts.grouped};
}

std::shared_ptr<ExpertExchange> or_alone(std::shared_ptr<ExpertExchange> exchange) {
    return exchange ? std::move(exchange) : std::make_shared<ExpertExchange>();
}

void require_sizes(const std::string& who, const ExpertSizes& sizes) {
    require(sizes.portions > 0, "{}: tokens in {} portions; one is expected at least",
            who, sizes.portions);
    require(sizes.capacity >= 0 && std::isfinite(sizes.capacity),
            "{}: the capacity is {} times an equal share; 0 or more is expected", who,
            sizes.capacity);
    require(sizes.capacity == 0 || sizes.portions == 1,
            "{}: experts with a capacity take all tokens at once; got {} portions", who,
            sizes.portions);
    require(
        sizes.load.empty() || static_cast<std::int64_t>(sizes.load.size()) == sizes.count,
        "{}: the load has {} numbers for {} experts", who, sizes.load.size(),
        sizes.count);
}

Tensor in_type(Device& device, const Tensor& tensor, DType dtype, SourceLine at) {
    if (tensor.dtype() == dtype) return tensor;
    Tensor made = device.empty(tensor.shape(), dtype, at);
    device.cast(made, tensor, at);
    return made;
}

Tensor as_rows(const Tensor& x) {
    return x.reshaped({x.shape().matrix_rows(), x.shape().columns()});
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(const ParameterInit& init, const Sizes& sizes,
                                   std::shared_ptr<ExpertExchange> exchange,
                                   std::unique_ptr<Module> shared)
    : device_(init.device),
      sizes_(sizes),
      exchange_(or_alone(std::move(exchange))),
      logits_(init.child("gate"), sizes.hidden, sizes.experts.count, /*bias=*/false),
      gate_(init.child("gate"), sizes.experts.count, sizes.experts.gate),
      experts_(init.child("experts"), sizes_of_experts(sizes),
               exchange_->share(init.name, sizes.experts.count), sizes.experts.portions),
      shared_(std::move(shared)),
      load_(static_cast<std::size_t>(sizes.experts.count)) {
    require_sizes(init.name, sizes.experts);
    exchange_->place(logits_.parameters(), experts_.parameters());
}

std::vector<Parameter*> MixtureOfExperts::parameters() {
    std::vector<Parameter*> all = logits_.parameters();
    for (Parameter* parameter : experts_.parameters())
        all.push_back(parameter);
    if (shared_)
        for (Parameter* parameter : shared_->parameters())
            all.push_back(parameter);
    return all;
}

std::vector<Buffer> MixtureOfExperts::buffers() {
    std::vector<Buffer> all = shared_ ? shared_->buffers() : std::vector<Buffer>{};
    if (gate_.bias()) all.insert(all.begin(), {gate_.bias_name(), gate_.bias()});
    return all;
}

void MixtureOfExperts::set_input_gradient(bool needed) {
    Module::set_input_gradient(needed);
    logits_.set_input_gradient(needed);
    experts_.set_input_gradient(needed);
    if (shared_) shared_->set_input_gradient(needed);
}

void MixtureOfExperts::each_part(FunctionRef<void(Module&)> visit) {
    visit(logits_);
    visit(experts_);
    if (shared_) visit(*shared_);
}

// lesson: mixture-of-experts
Tensor MixtureOfExperts::run(const Tensor& x, Saved& saved, bool trains) {
    const SourceLine at = saved.line();
    const Tensor tokens = exchange_->own_tokens(as_rows(x), at);  // (N, h)
    Gating gating = choose(tokens, saved, trains);
    std::vector<Portion> portions = routed(gating, at);
    drop_and_count(gating, portions, saved, trains);

    for (Portion& portion : portions)
        portion.way = exchange_->deliver(device_, portion.routing.counts, at);
    for (Portion& portion : portions)
        portion.way->start_there(copies(tokens, portion, at), at);
    const Tensor shared = of_shared(x, saved, trains);
    for (std::size_t i = 0; Portion & portion : portions) {
        Saved& own = saved.child(of_experts(i++));
        own.keep_value("rows", portion.way->rows());
        portion.way->start_back(experts_.forward(portion.way->there(at), own), at);
        if (!trains) own.clear();
    }
    const Tensor y = device_.zeros(tokens.shape(), tokens.dtype(), at);
    for (std::size_t i = 0; Portion & portion : portions)
        add_made(y, gating, portion, saved.child(of_portion(i++)));

    saved.keep_value("gating", std::move(gating));
    saved.keep_value("portions", std::move(portions));
    Tensor all = exchange_->all_tokens(y, at).reshaped(x.shape());
    if (shared) device_.add(all, shared, 1, at);
    return all;
}
// lesson: end

Tensor MixtureOfExperts::of_shared(const Tensor& x, Saved& saved, bool trains) {
    if (!shared_) return {};
    if (!trains) return shared_->infer(x, saved.line());
    return shared_->forward(x, saved.child(kShared));
}

// Copies each token (N, h) for each of its experts, expert by expert: (M, h)
Tensor MixtureOfExperts::copies(const Tensor& tokens, const Portion& portion,
                                SourceLine at) const {
    const Tensor& rows = portion.routing.rows;
    Tensor copies =
        device_.empty({rows.elements(), tokens.shape()[1]}, tokens.dtype(), at);
    device_.take_rows(copies, tokens.rows(portion.first, portion.count), rows, at);
    return copies;
}

// y (N, h) += the experts' results for the copies (M, h), each times its weight
void MixtureOfExperts::add_made(const Tensor& y, const Gating& gating,
                                const Portion& portion, Saved& saved) {
    const SourceLine at = saved.line();
    const Routing& routing = portion.routing;
    const Tensor weights = gating.weights.rows(portion.first, portion.count);  // (n, k)
    const Tensor in_order =
        device_.empty({routing.rows.elements(), 1}, weights.dtype(), at);
    device_.take_rows(in_order, weights.reshaped({weights.elements(), 1}), routing.order,
                      at);
    const Tensor factors = in_type(device_, in_order, y.dtype(), at);
    const Tensor made = portion.way->back(at);

    const Tensor weighted = device_.empty(made.shape(), y.dtype(), at);
    device_.copy(weighted, made, at);
    device_.scale_rows(weighted, factors, at);
    device_.add_rows(y.rows(portion.first, portion.count), weighted, routing.rows, at);
    saved.keep("by", factors);
    saved.keep("made", made);
}

Tensor MixtureOfExperts::do_forward(const Tensor& x, Saved& saved) {
    return run(x, saved, /*trains=*/true);
}

Tensor MixtureOfExperts::do_infer(const Tensor& x, SourceLine at) {
    Saved saved;
    saved.set_line(at);
    return run(x, saved, /*trains=*/false);
}

Gating MixtureOfExperts::choose(const Tensor& tokens, Saved& saved, bool trains) {
    const SourceLine at = saved.line();
    const Tensor logits = in_type(device_, logits_.forward(tokens, saved.child(kLogits)),
                                  computed_in(tokens.dtype()), at);
    if (!trains) return gate_.choose(logits, {}, at);
    RandomPart noise = saved.keep_state("noise", noise_);
    const std::int64_t apart = noise.pitch > 0 ? noise.pitch : sizes_.experts.count;
    noise.offset += exchange_->first_token(tokens.shape()[0]) * apart;
    return gate_.choose(logits, noise, at);
}

std::vector<MixtureOfExperts::Portion> MixtureOfExperts::routed(const Gating& gating,
                                                                SourceLine at) const {
    const std::int64_t tokens = gating.ids.shape()[0];
    std::vector<Portion> portions(static_cast<std::size_t>(sizes_.experts.portions));
    for (std::int64_t i = 0; Portion & portion : portions) {
        portion.first = tokens * i / sizes_.experts.portions;
        portion.count = tokens * ++i / sizes_.experts.portions - portion.first;
        portion.routing =
            route(device_, gating.ids.rows(portion.first, portion.count),
                  sizes_.experts.count, {sizes_.experts.order, sizes_.experts.load}, at);
    }
    return portions;
}

// Losses count all copies, including dropped ones.
void MixtureOfExperts::drop_and_count(Gating& gating, std::vector<Portion>& portions,
                                      Saved& saved, bool trains) {
    const SourceLine at = saved.line();
    const std::int64_t experts = sizes_.experts.count;
    CountsOfRanks all;
    if (sizes_.experts.capacity > 0 || (trains && gate_.options().balance > 0))
        all = exchange_->all_counts(device_, own_counts(gating, portions, at), at);
    if (trains) {
        // A forward that runs again is not counted again.
        ++forwards_;
        const bool again = saved.keep_state("forward", forwards_) != forwards_;
        if (!again) noise_.offset += noise_apart_;
        for (const Portion& portion : portions)
            for (std::size_t e = 0; !again && e < load_.size(); ++e)
                load_[e] += portion.routing.counts[e];
        for (Tensor& loss :
             gate_.losses(gating, shares_of(all, experts), loss_weight(saved), at)) {
            exchange_->add_up_loss(loss, at);
            saved.add_loss(std::move(loss));
        }
    }
    if (sizes_.experts.capacity > 0)
        portions[0].routing = first_of_each(
            device_, portions[0].routing,
            kept_counts(
                all, experts,
                expert_capacity(sizes_.experts.capacity, all_copies(all), experts)),
            at);
}

// If there is a capacity and choices come first, returns the counts of the first choices,
// then the counts of the second choices, and so on. Else returns one count per expert.
ExpertExchange::Counts MixtureOfExperts::own_counts(const Gating& gating,
                                                    const std::vector<Portion>& portions,
                                                    SourceLine at) const {
    if (sizes_.experts.capacity > 0 && sizes_.experts.order == CopyOrder::choices_first)
        return counts_by_choice(device_, gating.ids, sizes_.experts.count,
                                sizes_.experts.load, at);
    ExpertExchange::Counts counts(load_.size());
    for (const Portion& portion : portions)
        for (std::size_t e = 0; e < counts.size(); ++e)
            counts[e] += portion.routing.counts[e];
    return counts;
}

Tensor MixtureOfExperts::do_backward_input(const Tensor& dy, Saved& saved) {
    return run_backward(dy, saved, /*whole=*/false);
}

Tensor MixtureOfExperts::do_backward(const Tensor& dy, Saved& saved) {
    return run_backward(dy, saved, /*whole=*/true);
}

// lesson: mixture-of-experts-backward
Tensor MixtureOfExperts::run_backward(const Tensor& dy, Saved& saved, bool whole) {
    const SourceLine at = saved.line();
    const auto& gating = saved.value<Gating>("gating");
    const auto& portions = saved.value<std::vector<Portion>>("portions");
    const Tensor d_tokens = exchange_->own_tokens(as_rows(dy), at);  // (N, h)
    const Tensor d_weights =
        device_.zeros(gating.weights.shape(), gating.weights.dtype(), at);

    for (std::size_t i = 0; const Portion& portion : portions) {
        Saved& own = saved.child(of_portion(i++));
        portion.way->start_there(d_made(d_tokens, d_weights, portion, own), at);
        own.clear();
    }
    Tensor d_shared;
    if (shared_) d_shared = shared_->backward_input(dy, saved.child(kShared));
    for (std::size_t i = 0; const Portion& portion : portions) {
        Saved& own = saved.child(of_experts(i++));
        const Tensor d_copies = experts_.backward_input(portion.way->there(at), own);
        if (input_gradient()) portion.way->start_back(d_copies, at);
        if (whole) experts_.backward_weight(own);
    }
    if (whole && shared_) shared_->backward_weight(saved.child(kShared));
    const Tensor d_logits =
        in_type(device_, gate_.backward(gating, d_weights, loss_weight(saved), at),
                dy.dtype(), at);
    const Tensor dx = logits_.backward_input(d_logits, saved.child(kLogits));
    if (whole) logits_.backward_weight(saved.child(kLogits));
    for (const Portion& portion : portions)
        if (input_gradient())
            device_.add_rows(dx.rows(portion.first, portion.count), portion.way->back(at),
                             portion.routing.rows, at);
    saved.drop("gating");
    saved.drop("portions");
    if (!input_gradient()) return {};
    Tensor all = exchange_->all_tokens(dx, at).reshaped(dy.shape());
    if (shared_) device_.add(all, d_shared, 1, at);
    return all;
}

// For y = sum_j w_j made_j: returns the gradient of the results made_j, which is w_j dy,
// and adds the gradient of the weights w_j, which is dy made_j
Tensor MixtureOfExperts::d_made(const Tensor& d_tokens, const Tensor& d_weights,
                                const Portion& portion, Saved& saved) const {
    const SourceLine at = saved.line();
    const Tensor &factors = saved.at("by"), &made = saved.at("made");
    Tensor d_made = copies(d_tokens, portion, at);
    const Tensor products = device_.empty(factors.shape(), d_made.dtype(), at);
    device_.row_products(products, d_made, made, at);
    const Tensor own = d_weights.rows(portion.first, portion.count);
    device_.add_rows(own.reshaped({own.elements(), 1}),
                     in_type(device_, products, d_weights.dtype(), at),
                     portion.routing.order, at);
    device_.scale_rows(d_made, factors, at);
    return d_made;
}
// lesson: end

void MixtureOfExperts::do_backward_weight(Saved& saved) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(sizes_.experts.portions); ++i)
        experts_.backward_weight(saved.child(of_experts(i)));
    if (shared_) shared_->backward_weight(saved.child(kShared));
    logits_.backward_weight(saved.child(kLogits));
}

std::vector<std::int64_t> MixtureOfExperts::take_load() {
    std::vector<std::int64_t> none(load_.size());
    std::swap(load_, none);
    return none;
}

std::vector<MixtureOfExperts*> expert_layers(Module& model) {
    std::vector<MixtureOfExperts*> found;
    const std::function<void(Module&)> look = [&](Module& module) {
        if (auto* layer = dynamic_cast<MixtureOfExperts*>(&module))
            found.push_back(layer);
        else
            module.each_part(look);
    };
    look(model);
    return found;
}

}  // namespace lockstep
