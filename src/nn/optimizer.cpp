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
        state_.emplace_back(fmt::format("{}/{}", name, parameter->name()),
                            tensors.back());
    }
    return tensors;
}

Sgd::Sgd(std::vector<Parameter*> parameters, SgdOptions chosen)
    : Optimizer(std::move(parameters)), options(chosen) {
    if (options.momentum != 0) velocities_ = make_state("momentum_buffer");
}

void Sgd::step() {
    for (std::size_t i = 0; i < parameters().size(); ++i) {
        const Parameter& parameter = *parameters()[i];
        const Tensor velocity = velocities_.empty() ? Tensor() : velocities_[i];
        parameter.value.device()->sgd(parameter.value, parameter.gradient, velocity,
                                      options);
    }
}

AdamW::AdamW(std::vector<Parameter*> parameters, AdamWOptions chosen)
    : Optimizer(std::move(parameters)), options(chosen) {
    first_moments_ = make_state("exp_avg");
    second_moments_ = make_state("exp_avg_sq");
}

void AdamW::step() {
    ++steps_;
    for (std::size_t i = 0; i < parameters().size(); ++i) {
        const Parameter& parameter = *parameters()[i];
        parameter.value.device()->adamw(parameter.value, parameter.gradient,
                                        first_moments_[i], second_moments_[i], steps_,
                                        options);
    }
}

}  // namespace lockstep
