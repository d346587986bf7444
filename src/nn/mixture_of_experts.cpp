#include "src/nn/mixture_of_experts.hpp"

#include <functional>
#include <utility>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

// A forward keeps what its parts save in these children; the experts have one for each
// part of the tokens.
constexpr std::size_t kLogits = 0, kShared = 1, kExperts = 2;

Experts::Sizes sizes_of_experts(const MixtureOfExperts::Sizes& sizes) {
    return {sizes.hidden, sizes.of.inner, sizes.of.count,
            sizes.gated,  sizes.gelu,     sizes.of.grouped};
}

std::shared_ptr<ExpertExchange> or_alone(std::shared_ptr<ExpertExchange> exchange) {
    return exchange ? std::move(exchange) : std::make_shared<ExpertExchange>();
}

void require_sizes(const std::string& who, const ExpertSizes& sizes) {
    require(sizes.parts > 0, "{}: tokens in {} parts; one is expected at least", who,
            sizes.parts);
    require(sizes.capacity >= 0,
            "{}: the capacity is {} of an equal share; it may not be "
            "negative",
            who, sizes.capacity);
    require(sizes.capacity == 0 || sizes.parts == 1,
            "{}: experts with a capacity take all tokens at once; got {} parts", who,
            sizes.parts);
    require(
        sizes.load.empty() || static_cast<std::int64_t>(sizes.load.size()) == sizes.count,
        "{}: a load of {} experts, for {}", who, sizes.load.size(), sizes.count);
}

Tensor in_type(Device& device, const Tensor& tensor, DType dtype, SourceLine at) {
    if (tensor.dtype() == dtype) return tensor;
    Tensor made = device.empty(tensor.shape(), dtype, at);
    device.cast(made, tensor, at);
    return made;
}

Tensor as_rows(const Tensor& x) {
    return x.reshaped({x.shape().rows(), x.shape().columns()});
}

}  // namespace

MixtureOfExperts::MixtureOfExperts(const ParameterInit& init, const Sizes& sizes,
                                   std::shared_ptr<ExpertExchange> exchange,
                                   std::unique_ptr<Module> shared)
    : device_(init.device),
      sizes_(sizes),
      exchange_(or_alone(std::move(exchange))),
      logits_(init.child("gate"), sizes.hidden, sizes.of.count, /*bias=*/false),
      gate_(init.child("gate"), sizes.of.count, sizes.of.gate),
      experts_(init.child("experts"), sizes_of_experts(sizes),
               exchange_->share(init.name, sizes.of.count), sizes.of.parts),
      shared_(std::move(shared)),
      load_(static_cast<std::size_t>(sizes.of.count)) {
    require_sizes(init.name, sizes.of);
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
    std::vector<Part> parts = routed(gating, at);
    drop_and_count(gating, parts, saved, trains);

    for (Part& part : parts) {
        part.way = exchange_->deliver(device_, part.routing.counts, at);
        part.way->start_there(copies(tokens, part, at), at);
    }
    Tensor shared;
    if (shared_) shared = shared_->forward(x, saved.child(kShared));
    for (std::size_t i = 0; Part & part : parts) {
        Saved& own = saved.child(kExperts + i++);
        own.keep_value("rows", part.way->rows());
        part.way->start_back(experts_.forward(part.way->there(at), own), at);
    }
    const Tensor y = device_.zeros(tokens.shape(), tokens.dtype(), at);
    for (Part& part : parts)
        add_made(y, gating, part, at);

    saved.keep_value("gating", std::move(gating));
    saved.keep_value("parts", std::move(parts));
    Tensor all = exchange_->all_tokens(y, at).reshaped(x.shape());
    if (shared) device_.add(all, shared, 1, at);
    return all;
}

// Of tokens (N, h), a copy for each expert that they go to, expert by expert: (M, h)
Tensor MixtureOfExperts::copies(const Tensor& tokens, const Part& part,
                                SourceLine at) const {
    const Tensor& rows = part.routing.rows;
    Tensor copies =
        device_.empty({rows.elements(), tokens.shape()[1]}, tokens.dtype(), at);
    device_.take_rows(copies, tokens.rows(part.first, part.count), rows, at);
    return copies;
}

// y (N, h) += what experts made of the copies (M, h), each times its weight
void MixtureOfExperts::add_made(const Tensor& y, const Gating& gating, Part& part,
                                SourceLine at) {
    const Routing& routing = part.routing;
    const Tensor weights = gating.weights.rows(part.first, part.count);  // (n, k)
    const Tensor by = device_.empty({routing.rows.elements(), 1}, weights.dtype(), at);
    device_.take_rows(by, weights.reshaped({weights.elements(), 1}), routing.order, at);
    part.by = in_type(device_, by, y.dtype(), at);
    part.made = part.way->back(at);

    const Tensor weighted = device_.empty(part.made.shape(), y.dtype(), at);
    device_.copy(weighted, part.made, at);
    device_.scale_rows(weighted, part.by, at);
    device_.add_rows(y.rows(part.first, part.count), weighted, routing.rows, at);
}
// lesson: end

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
    return gate_.choose(logits, saved.keep_state("noise", noise_), at);
}

std::vector<MixtureOfExperts::Part> MixtureOfExperts::routed(const Gating& gating,
                                                             SourceLine at) const {
    const std::int64_t tokens = gating.ids.shape()[0];
    std::vector<Part> parts(static_cast<std::size_t>(sizes_.of.parts));
    for (std::int64_t i = 0; Part & part : parts) {
        part.first = tokens * i / sizes_.of.parts;
        part.count = tokens * ++i / sizes_.of.parts - part.first;
        part.routing = route(device_, gating.ids.rows(part.first, part.count),
                             sizes_.of.count, {sizes_.of.order, sizes_.of.load}, at);
    }
    return parts;
}

// Losses count all copies, also those that are dropped.
void MixtureOfExperts::drop_and_count(Gating& gating, std::vector<Part>& parts,
                                      Saved& saved, bool trains) {
    const SourceLine at = saved.line();
    const std::int64_t experts = sizes_.of.count;
    CountsOfRanks all;
    if (sizes_.of.capacity > 0 || (trains && gate_.options().balance > 0))
        all = exchange_->all_counts(device_, own_counts(gating, parts, at), at);
    if (trains) {
        // A forward that runs again counts as the one before.
        ++forwards_;
        const bool again = saved.keep_state("forward", forwards_) != forwards_;
        for (const Part& part : parts)
            for (std::size_t e = 0; !again && e < load_.size(); ++e)
                load_[e] += part.routing.counts[e];
        for (Tensor& loss :
             gate_.losses(gating, shares_of(all, experts), loss_weight(saved), at)) {
            exchange_->add_up_loss(loss, at);
            saved.add_loss(std::move(loss));
        }
    }
    if (sizes_.of.capacity > 0)
        parts[0].routing = first_of_each(
            device_, parts[0].routing,
            kept_counts(all, experts,
                        expert_capacity(sizes_.of.capacity, all_copies(all), experts)),
            at);
}

// With a capacity, if choices come first, the counts of the first choices, then those of
// the second …
ExpertExchange::Counts MixtureOfExperts::own_counts(const Gating& gating,
                                                    const std::vector<Part>& parts,
                                                    SourceLine at) const {
    if (sizes_.of.capacity > 0 && sizes_.of.order == CopyOrder::choices_first)
        return counts_by_choice(device_, gating.ids, sizes_.of.count, sizes_.of.load, at);
    ExpertExchange::Counts counts(load_.size());
    for (const Part& part : parts)
        for (std::size_t e = 0; e < counts.size(); ++e)
            counts[e] += part.routing.counts[e];
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
    const auto& parts = saved.value<std::vector<Part>>("parts");
    const Tensor d_tokens = exchange_->own_tokens(as_rows(dy), at);  // (N, h)
    const Tensor d_weights =
        device_.zeros(gating.weights.shape(), gating.weights.dtype(), at);

    for (const Part& part : parts)
        part.way->start_there(d_made(d_tokens, d_weights, part, at), at);
    Tensor d_shared;
    if (shared_) d_shared = shared_->backward_input(dy, saved.child(kShared));
    for (std::size_t i = 0; const Part& part : parts) {
        Saved& own = saved.child(kExperts + i++);
        const Tensor d_copies = experts_.backward_input(part.way->there(at), own);
        if (input_gradient()) part.way->start_back(d_copies, at);
        if (whole) experts_.backward_weight(own);
    }
    if (whole && shared_) shared_->backward_weight(saved.child(kShared));
    const Tensor d_logits =
        in_type(device_, gate_.backward(gating, d_weights, loss_weight(saved), at),
                dy.dtype(), at);
    const Tensor dx = logits_.backward_input(d_logits, saved.child(kLogits));
    if (whole) logits_.backward_weight(saved.child(kLogits));
    if (!input_gradient()) return {};
    for (const Part& part : parts)
        device_.add_rows(dx.rows(part.first, part.count), part.way->back(at),
                         part.routing.rows, at);
    Tensor all = exchange_->all_tokens(dx, at).reshaped(dy.shape());
    if (shared_) device_.add(all, d_shared, 1, at);
    return all;
}

// The gradient of what experts made, w_j dy, and of the weights, dy times what they made:
// y = sum_j w_j made_j
Tensor MixtureOfExperts::d_made(const Tensor& d_tokens, const Tensor& d_weights,
                                const Part& part, SourceLine at) const {
    Tensor d_made = copies(d_tokens, part, at);
    const Tensor products = device_.empty(part.by.shape(), d_made.dtype(), at);
    device_.row_products(products, d_made, part.made, at);
    const Tensor own = d_weights.rows(part.first, part.count);
    device_.add_rows(own.reshaped({own.elements(), 1}),
                     in_type(device_, products, d_weights.dtype(), at),
                     part.routing.order, at);
    device_.scale_rows(d_made, part.by, at);
    return d_made;
}
// lesson: end

void MixtureOfExperts::do_backward_weight(Saved& saved) {
    for (std::size_t i = 0; i < static_cast<std::size_t>(sizes_.of.parts); ++i)
        experts_.backward_weight(saved.child(kExperts + i));
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
