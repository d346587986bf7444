#include "src/nn/sequential.hpp"

#include <algorithm>

#include "src/core/require.hpp"

namespace lockstep {

void Sequential::add(std::unique_ptr<Module> module) {
    require(module != nullptr, "Sequential was given a module that is null");
    if (modules_.empty()) module->set_input_gradient(input_gradient());
    modules_.push_back(std::move(module));
}

std::vector<Parameter*> Sequential::parameters() {
    std::vector<Parameter*> all;
    for (const auto& module : modules_) {
        const std::vector<Parameter*> part = module->parameters();
        all.insert(all.end(), part.begin(), part.end());
    }
    return all;
}

void Sequential::set_input_gradient(bool needed) {
    Module::set_input_gradient(needed);
    if (!modules_.empty()) modules_.front()->set_input_gradient(needed);
}

Tensor Sequential::do_forward(const Tensor& x, Saved& saved) {
    Tensor y = x;
    for (std::size_t i = 0; i < modules_.size(); ++i)
        y = modules_[i]->forward(y, saved.child(i));
    return y;
}

Tensor Sequential::do_backward(const Tensor& dy, Saved& saved) {
    Tensor gradient = dy;
    for (std::size_t i = modules_.size(); i-- > 0;)
        gradient = modules_[i]->backward(gradient, saved.child(i));
    return gradient;
}

Tensor Sequential::do_backward_input(const Tensor& dy, Saved& saved) {
    Tensor gradient = dy;
    for (std::size_t i = modules_.size(); i-- > 0;)
        gradient = modules_[i]->backward_input(gradient, saved.child(i));
    return gradient;
}

void Sequential::do_backward_weight(Saved& saved) {
    for (std::size_t i = modules_.size(); i-- > 0;)
        modules_[i]->backward_weight(saved.child(i));
}

}  // namespace lockstep
