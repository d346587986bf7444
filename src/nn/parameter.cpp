#include "src/nn/parameter.hpp"

namespace lockstep {

ParameterInit ParameterInit::child(const std::string& part) const {
    return {device, dtype, seed, name.empty() ? part : name + "." + part};
}

Parameter::Parameter(const ParameterInit& init, const std::string& part, Shape shape)
    : name_(init.child(part).name), shape_(shape) {
    {
        MemoryScope scope(init.device, MemoryCategory::parameters);
        value = init.device.empty(shape, init.dtype);
    }
    MemoryScope scope(init.device, MemoryCategory::gradients);
    gradient = init.device.zeros(shape, init.dtype);
    value.set_label(name_);
    gradient.set_label(name_);
}

Parameter::Parameter(std::string name, Tensor values, Tensor gradients)
    : value(std::move(values)),
      gradient(std::move(gradients)),
      name_(std::move(name)),
      shape_(value.shape()) {
    value.set_label(name_);
    gradient.set_label(name_);
}

void Parameter::begin_use() {
    for (const Hook& hook : use_hooks_)
        hook(*this);
}

void Parameter::end_use() {
    for (const Hook& hook : release_hooks_)
        hook(*this);
}

void Parameter::accumulated() {
    if (++contributions_ < uses) return;
    contributions_ = 0;
    for (const Hook& hook : gradient_hooks_)
        hook(*this);
}

void Parameter::zero_gradient() {
    contributions_ = 0;
    if (gradient) gradient.device()->fill(gradient, 0);
}

}  // namespace lockstep
