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
}

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

namespace {

void require_present(const Parameter& parameter) {
    require(parameter.value && parameter.gradient,
            "an optimizer's step needs the {} of {}, which is absent",
            parameter.value ? "gradient" : "value", parameter.name());
}

template <typename Group>
std::vector<Parameter*> parameters_of(const std::vector<Group>& groups) {
    require(!groups.empty(), "an optimizer was given no group of parameters");
    std::vector<Parameter*> all;
    for (const Group& group : groups)
        all.insert(all.end(), group.parameters.begin(), group.parameters.end());
    return all;
}

}  // namespace

Sgd::Sgd(std::vector<Parameter*> parameters, SgdOptions chosen)
    : Sgd(OfGroups{}, {{std::move(parameters), chosen}}) {}

Sgd::Sgd(OfGroups /*tag*/, Groups chosen)
    : Optimizer(parameters_of(chosen)), groups(std::move(chosen)) {
    for (const auto& group : groups)
        if (group.options.momentum != 0 && velocities_.empty())
            velocities_ = make_state("momentum_buffer");
}

void Sgd::step() {
    std::size_t i = 0;
    for (const auto& group : groups)
        for (const Parameter* parameter : group.parameters) {
            require_present(*parameter);
            const bool has_velocity = !velocities_.empty() && group.options.momentum != 0;
            const Tensor velocity = has_velocity ? velocities_[i] : Tensor();
            parameter->value.device()->sgd(parameter->value, parameter->gradient,
                                           velocity, group.options);
            ++i;
        }
}

AdamW::AdamW(std::vector<Parameter*> parameters, AdamWOptions chosen)
    : AdamW(OfGroups{}, {{std::move(parameters), chosen}}) {}

AdamW::AdamW(OfGroups /*tag*/, Groups chosen)
    : Optimizer(parameters_of(chosen)), groups(std::move(chosen)) {
    first_moments_ = make_state("exp_avg");
    second_moments_ = make_state("exp_avg_sq");
}

void AdamW::step() {
    ++steps_;
    std::size_t i = 0;
    for (const auto& group : groups)
        for (const Parameter* parameter : group.parameters) {
            require_present(*parameter);
            parameter->value.device()->adamw(parameter->value, parameter->gradient,
                                             first_moments_[i], second_moments_[i],
                                             steps_, group.options);
            ++i;
        }
}

MasterWeights::MasterWeights(std::vector<Parameter*> parameters, const Make& make)
    : Optimizer(std::move(parameters)) {
    std::vector<Parameter*> masters;
    for (Parameter* parameter : this->parameters()) {
        if (parameter->dtype() != DType::bf16) {
            masters.push_back(parameter);
            continue;
        }
        Device& device = *parameter->value.device();
        const MemoryScope scope(device, MemoryCategory::optimizer);
        const Tensor value = device.empty(parameter->shape(), DType::f32);
        device.cast(value, parameter->value);
        add_state({"master/" + parameter->name(), value, parameter});
        pairs_.push_back(
            {parameter, std::make_unique<Parameter>(parameter->name(), value, Tensor(),
                                                    parameter->part())});
        masters.push_back(pairs_.back().master.get());
    }
    optimizer_ = make(std::move(masters));
    for (const State& state : optimizer_->state())
        add_state(state);
}

void MasterWeights::step() {
    for (const auto& [parameter, master] : pairs_) {
        master->gradient = parameter->gradient;
        // Each line is said once, whenever it was said of the parameter.
        if (master->placements.size() == parameter->placements.size()) continue;
        master->placements = parameter->placements;
        declare_again(*master);
    }
    optimizer_->step();
    for (const auto& [parameter, master] : pairs_) {
        parameter->value.device()->cast(parameter->value, master->value);
        master->gradient = Tensor();  // whoever lets go of the parameter's frees it
    }
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
                "{} is a range of a flat buffer, of {}: it cannot be told there which "
                "elements are a matrix's",
                parameter->name(), all);
        const bool is_matrix = parameter->part().whole.dimensions() >= 2;
        groups[is_matrix ? 0 : 1].parameters.push_back(parameter);
    }
    std::erase_if(groups, [](const auto& group) { return group.parameters.empty(); });
    return groups;
}

}  // namespace lockstep
