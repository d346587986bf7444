#include "src/nn/module.hpp"

#include <cstring>

#include "src/core/require.hpp"

namespace lockstep {

const Tensor* Saved::find(const char* name) const {
    for (const auto& [kept, tensor] : tensors_)
        if (std::strcmp(kept, name) == 0) return &tensor;
    return nullptr;
}

void Saved::keep(const char* name, Tensor tensor) {
    require(find(name) == nullptr,
            "this Saved already holds \"{}\" of another forward: each micro-batch needs "
            "its own, or clear() where there is no backward",
            name);
    tensors_.emplace_back(name, std::move(tensor));
}

const Tensor& Saved::at(const char* name) const {
    const Tensor* tensor = find(name);
    require(tensor != nullptr,
            "backward needs \"{}\", which this Saved does not hold: each backward "
            "follows one forward with the same Saved",
            name);
    return *tensor;
}

void Saved::drop(const char* name) {
    std::erase_if(tensors_,
                  [&](const auto& kept) { return std::strcmp(kept.first, name) == 0; });
}

void Saved::clear() {
    tensors_.clear();
    for (const auto& child : children_)
        child->clear();
}

Saved& Saved::child(std::size_t index) {
    while (children_.size() <= index)
        children_.push_back(std::make_unique<Saved>());
    return *children_[index];
}

namespace {

/// Runs `work` between begin_use and end_use of the parameters. When it throws, the hooks
/// of end_use do not run: they may communicate, and the run is over.
template <typename Work>
auto using_parameters(const std::vector<Parameter*>& parameters, Use use, Work&& work) {
    for (Parameter* parameter : parameters)
        parameter->begin_use(use);
    auto result = work();
    for (Parameter* parameter : parameters)
        parameter->end_use(use);
    return result;
}

void require_gradient(const Tensor& dy) {
    require(static_cast<bool>(dy),
            "backward was given no gradient: the module after this one computes none "
            "for its input (an Embedding, or set_input_gradient(false))");
}

}  // namespace

Tensor Module::forward(const Tensor& x, Saved& saved) {
    return using_parameters(own_parameters(), Use::forward,
                            [&] { return do_forward(x, saved); });
}

Tensor Module::infer(const Tensor& x) {
    return using_parameters(own_parameters(), Use::forward, [&] { return do_infer(x); });
}

Tensor Module::do_infer(const Tensor& x) {
    Saved saved;
    return do_forward(x, saved);
}

Tensor Module::backward_input(const Tensor& dy, Saved& saved) {
    require_gradient(dy);
    return using_parameters(own_parameters(), Use::backward_input,
                            [&] { return do_backward_input(dy, saved); });
}

void Module::backward_weight(Saved& saved) {
    using_parameters(own_parameters(), Use::backward_weight, [&] {
        do_backward_weight(saved);
        saved.clear();
        return true;
    });
}

Tensor Module::backward(const Tensor& dy, Saved& saved) {
    require_gradient(dy);
    return using_parameters(own_parameters(), Use::backward, [&] {
        Tensor dx = do_backward(dy, saved);
        saved.clear();
        return dx;
    });
}

Tensor Module::do_backward(const Tensor& dy, Saved& saved) {
    Tensor dx = do_backward_input(dy, saved);
    do_backward_weight(saved);
    return dx;
}

void zero_gradients(Module& module, int passes) {
    for (Parameter* parameter : module.parameters())
        parameter->zero_gradient(passes);
}

}  // namespace lockstep
