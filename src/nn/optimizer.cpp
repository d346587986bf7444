#include "src/nn/optimizer.hpp"

#include <set>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

Optimizer::Optimizer(std::vector<Parameter*> parameters)
    : parameters_(std::move(parameters)) {
    std::set<const Parameter*> seen;
    for (const Parameter* parameter : parameters_) {
        require(parameter != nullptr && parameter->value,
                "an optimizer was given {}, which has no value here",
                parameter ? parameter->name() : "a null parameter");
        require(seen.insert(parameter).second, "an optimizer was given {} twice",
                parameter->name());
    }
    steps_.resize(parameters_.size());
}

namespace {

void require_present(const Parameter& parameter) {
    require(parameter.value && parameter.gradient,
            "an optimizer's step needs the {} of {}, which is absent",
            parameter.value ? "gradient" : "value", parameter.name());
}

}  // namespace

std::vector<Tensor> Optimizer::make_state(const char* name) {
    std::vector<Tensor> tensors;
    for (const Parameter* parameter : parameters_) {
        Device& device = *parameter->value.device();
        MemoryScope scope(device, MemoryCategory::optimizer);
        tensors.push_back(
            device.zeros(parameter->value.shape(), parameter->value.dtype()));
        state_.push_back(
            {fmt::format("{}/{}", name, parameter->name()), tensors.back(), parameter});
    }
    return tensors;
}

void Optimizer::require_of(const char* who,
                           const std::vector<Parameter*>& parameters) const {
    require(std::ranges::is_permutation(parameters_, parameters),
            "{}: the optimizer's parameters are not those that are updated here: it has "
            "{}, and {} are updated",
            who, parameters_.size(), parameters.size());
}

void Optimizer::step(SourceLine at) {
    for (const Parameter* parameter : parameters_)
        require_present(*parameter);
    for (std::size_t i = 0; i < parameters_.size(); ++i)
        do_step(i, ++steps_[i], at);
}

void Optimizer::step(const Parameter& parameter, SourceLine at) {
    const auto found = std::ranges::find(parameters_, &parameter);
    require(found != parameters_.end(),
            "an optimizer was asked to step {}, which is not "
            "among its parameters",
            parameter.name());
    require_present(parameter);
    const auto index = static_cast<std::size_t>(found - parameters_.begin());
    do_step(index, ++steps_[index], at);
}

void Optimizer::set_steps(std::vector<std::int64_t> steps) {
    require(steps.size() == parameters_.size(),
            "an optimizer of {} parameters was given {} numbers of steps",
            parameters_.size(), steps.size());
    for (std::size_t i = 0; i < steps.size(); ++i)
        require(steps[i] >= 0, "{} has {} steps; 0 or more are expected",
                parameters_[i]->name(), steps[i]);
    steps_ = std::move(steps);
    steps_were_set();
}

namespace {

template <typename Group>
std::vector<Parameter*> parameters_of(const std::vector<Group>& groups) {
    require(!groups.empty(), "an optimizer was given no group of parameters");
    std::vector<Parameter*> all;
    for (const Group& group : groups)
        all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    return all;
}

/// Returns the group of each parameter.
template <typename Group>
std::vector<std::size_t> groups_of(const std::vector<Group>& groups) {
    std::vector<std::size_t> places;
    for (std::size_t i = 0; i < groups.size(); ++i)
        places.insert(places.end(), groups[i].parameters.size(), i);
    return places;
}

}  // namespace

Sgd::Sgd(std::vector<Parameter*> parameters, SgdOptions chosen)
    : Sgd(OfGroups{}, {{std::move(parameters), chosen}}) {}

Sgd::Sgd(OfGroups /*tag*/, Groups chosen)
    : Optimizer(parameters_of(chosen)), groups(std::move(chosen)) {
    group_of_ = groups_of(groups);
    for (const auto& group : groups)
        if (group.options.momentum != 0 && velocities_.empty())
            velocities_ = make_state("momentum_buffer");
}

void Sgd::do_step(std::size_t index, std::int64_t /*step*/, SourceLine at) {
    const Parameter& parameter = *parameters()[index];
    const SgdOptions& options = groups[group_of_[index]].options;
    const bool has_velocity = !velocities_.empty() && options.momentum != 0;
    parameter.value.device()->sgd(parameter.value, parameter.gradient,
                                  has_velocity ? velocities_[index] : Tensor(), options,
                                  at);
}

AdamW::AdamW(std::vector<Parameter*> parameters, AdamWOptions chosen)
    : AdamW(OfGroups{}, {{std::move(parameters), chosen}}) {}

AdamW::AdamW(OfGroups /*tag*/, Groups chosen)
    : Optimizer(parameters_of(chosen)), groups(std::move(chosen)) {
    group_of_ = groups_of(groups);
    first_moments_ = make_state("exp_avg");
    second_moments_ = make_state("exp_avg_sq");
}

void AdamW::do_step(std::size_t index, std::int64_t step, SourceLine at) {
    const Parameter& parameter = *parameters()[index];
    parameter.value.device()->adamw(parameter.value, parameter.gradient,
                                    first_moments_[index], second_moments_[index], step,
                                    groups[group_of_[index]].options, at);
}

MasterWeights::MasterWeights(std::vector<Parameter*> parameters, const Make& make)
    : Optimizer(std::move(parameters)) {
    std::vector<Parameter*> updated;
    for (Parameter* parameter : this->parameters()) {
        masters_.push_back(nullptr);
        times_set_.push_back(parameter->times_set);
        if (parameter->dtype() != DType::bf16) {
            updated.push_back(parameter);
            continue;
        }
        Device& device = *parameter->value.device();
        const MemoryScope scope(device, MemoryCategory::optimizer);
        const Tensor value = device.empty(parameter->shape(), DType::f32);
        device.cast(value, parameter->value);
        add_state({"master/" + parameter->name(), value, parameter});
        masters_.back() = std::make_unique<Parameter>(parameter->name(), value, Tensor(),
                                                      parameter->part());
        updated.push_back(masters_.back().get());
    }
    optimizer_ = make(std::move(updated));
    for (const State& state : optimizer_->state())
        add_state(state);
}

void MasterWeights::do_step(std::size_t index, std::int64_t /*step*/, SourceLine at) {
    Parameter& parameter = *parameters()[index];
    Parameter* master = masters_[index].get();
    if (master == nullptr) return optimizer_->step(parameter, at);
    if (std::exchange(times_set_[index], parameter.times_set) != parameter.times_set)
        parameter.value.device()->cast(master->value, parameter.value, at);
    master->gradient = parameter.gradient;
    // If the parameter has new placements, declares them for the master, too.
    if (master->placements.size() != parameter.placements.size()) {
        master->placements = parameter.placements;
        declare_again(*master);
    }
    optimizer_->step(*master, at);
    parameter.value.device()->cast(parameter.value, master->value, at);
    master->gradient = Tensor();  // so that a strategy can free the gradient
}

/// The checkpoint has loaded the masters, too. So they need not be made again.
void MasterWeights::steps_were_set() {
    optimizer_->set_steps(steps());
    for (std::size_t i = 0; i < times_set_.size(); ++i)
        times_set_[i] = parameters()[i]->times_set;
}

AdamW::Groups decay_matrices_only(const std::vector<Parameter*>& parameters,
                                  AdamWOptions options) {
    AdamW::Groups groups(2);
    groups[0].options = groups[1].options = options;
    groups[1].options.weight_decay = 0;
    for (Parameter* parameter : parameters) {
        const Tensor& value = parameter->value;
        const std::string all =
            value ? value.storage()->names(value.offset_bytes(),
                                           value.offset_bytes() + value.bytes())
                  : parameter->name();
        const bool is_unsaid_part = holds_all(parameter->part()) && value &&
                                    value.labelled() != nullptr &&
                                    value.labelled()->bytes > value.bytes();
        require(all == parameter->name() && !is_unsaid_part,
                "{} is a range of a flat buffer with {}: it is unknown which of its "
                "elements belong to a matrix",
                parameter->name(), all);
        const bool is_matrix = parameter->part().whole.dimensions() >= 2;
        groups[is_matrix ? 0 : 1].parameters.push_back(parameter);
    }
    std::erase_if(groups, [](const auto& group) { return group.parameters.empty(); });
    return groups;
}

}  // namespace lockstep
