#include "src/nn/parameter.hpp"

namespace lockstep {

ParameterInit ParameterInit::child(const std::string& part) const {
    return {device, dtype, seed, name.empty() ? part : name + "." + part};
}

namespace {

Part all_of(const Shape& shape) {
    const std::int64_t rows = shape.dimensions() == 1 ? shape[0] : shape.rows();
    return {shape, shape, {{0, 0, rows}}, 0};
}

}  // namespace

Parameter::Parameter(const ParameterInit& init, const std::string& name, Shape shape)
    : Parameter(init, name, all_of(shape)) {}

Parameter::Parameter(const ParameterInit& init, const std::string& name, Part part)
    : name_(init.child(name).name), part_(std::move(part)) {
    {
        MemoryScope scope(init.device, MemoryCategory::parameters);
        value = init.device.empty(part_.shape, init.dtype);
    }
    MemoryScope scope(init.device, MemoryCategory::gradients);
    gradient = init.device.zeros(part_.shape, init.dtype);
    value.set_label(name_);
    gradient.set_label(name_);
}

Parameter::Parameter(std::string name, Tensor values, Tensor gradients)
    : value(std::move(values)),
      gradient(std::move(gradients)),
      name_(std::move(name)),
      part_(all_of(value.shape())) {
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
