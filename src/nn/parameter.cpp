#include "src/nn/parameter.hpp"

#include "src/comm/expect.hpp"
#include "src/core/require.hpp"

namespace lockstep {

ParameterInit ParameterInit::child(const std::string& part) const {
    ParameterInit inside = *this;
    inside.name = name.empty() ? part : name + "." + part;
    return inside;
}

ParameterInit ParameterInit::for_inference() const {
    ParameterInit all = *this;
    all.trains = false;
    return all;
}

Parameter::Parameter(const ParameterInit& init, const std::string& name, Shape shape)
    : Parameter(init, name, whole_part(shape)) {}

Parameter::Parameter(const ParameterInit& init, const std::string& name, Part part)
    : name_(init.child(name).name), part_(std::move(part)), dtype_(init.dtype) {
    if (!init.allocate) return;
    {
        MemoryScope scope(init.device, MemoryCategory::parameters);
        value = init.device.empty(part_.shape, init.dtype);
        name_tensor(value);
    }
    if (!init.trains) return;
    MemoryScope scope(init.device, MemoryCategory::gradients);
    gradient = init.device.zeros(part_.shape, init.dtype);
    name_tensor(gradient);
}

void Parameter::name_tensor(const Tensor& tensor) const {
    tensor.set_label(name_, holds_all(part_) ? "" : text_of(part_));
}

// NOLINTNEXTLINE(performance-unnecessary-value-param): a move may come before shape().
Parameter::Parameter(std::string name, Tensor values, Tensor gradients)
    : Parameter(std::move(name), values, std::move(gradients),
                whole_part(values.shape())) {}

Parameter::Parameter(std::string name, Tensor values, Tensor gradients, Part part)
    : value(std::move(values)),
      gradient(std::move(gradients)),
      name_(std::move(name)),
      part_(std::move(part)),
      dtype_(value.dtype()) {
    require(value.shape() == part_.shape, "{}: a value of shape {}, but its part is {}",
            name_, value.shape(), part_.shape);
    for (const Tensor* tensor : {&value, &gradient}) {
        // Keeps labels of smaller ranges: they name parts of the parameter.
        const Storage::Label* range = tensor->labelled();
        if (range == nullptr || (range->name != name_ && range->bytes > tensor->bytes()))
            name_tensor(*tensor);
    }
}

void Parameter::set_initial(Fill fill) {
    initial_ = std::move(fill);
    if (value) fill_initial();
}

void Parameter::fill_initial() const {
    require(value && initial_, "{} cannot be filled with its initial values: {}", name_,
            value ? "none were set" : "its value is absent");
    initial_(*this);
}

void Parameter::begin_use(Use use) {
    for (const auto& [id, hook] : use_hooks_)
        hook(*this, use);
}

void Parameter::end_use(Use use) {
    for (const auto& [id, hook] : release_hooks_)
        hook(*this, use);
}

void Parameter::accumulated() {
    complete = false;
    if (++contributions_ % uses != 0) return;
    for (const auto& [id, hook] : pass_hooks_)
        hook(*this);
    if (contributions_ < uses * passes_) return;
    contributions_ = 0;
    for (const auto& [id, hook] : gradient_hooks_)
        hook(*this);
}

void Parameter::set_complete() {
    complete = true;
    for (const auto& [id, hook] : gradient_hooks_)
        hook(*this);
}

Parameter::HookId Parameter::on_use(UseHook hook) {
    use_hooks_.emplace_back(next_hook_, std::move(hook));
    return next_hook_++;
}

Parameter::HookId Parameter::on_release(UseHook hook) {
    release_hooks_.emplace_back(next_hook_, std::move(hook));
    return next_hook_++;
}

Parameter::HookId Parameter::on_pass(Hook hook) {
    pass_hooks_.emplace_back(next_hook_, std::move(hook));
    return next_hook_++;
}

Parameter::HookId Parameter::on_gradient(Hook hook) {
    gradient_hooks_.emplace_back(next_hook_, std::move(hook));
    return next_hook_++;
}

void Parameter::remove_hook(HookId id) {
    const auto is_it = [&](const auto& hook) { return hook.first == id; };
    std::erase_if(use_hooks_, is_it);
    std::erase_if(release_hooks_, is_it);
    std::erase_if(pass_hooks_, is_it);
    std::erase_if(gradient_hooks_, is_it);
}

void Parameter::zero_gradient(int passes) {
    passes_ = passes;
    contributions_ = 0;
    complete = false;
    if (gradient) gradient.device()->fill(gradient, 0);
}

void declare_again(const Parameter& parameter) {
    for (const Placement& placement : parameter.placements)
        if (!placement.is_sharded())
            declare_replicas(*placement.line, parameter.value, parameter.name(),
                             placement.at);
}

}  // namespace lockstep
