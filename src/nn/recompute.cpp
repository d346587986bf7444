#include "src/nn/recompute.hpp"

#include "src/core/require.hpp"

namespace lockstep {

Recompute::Recompute(std::unique_ptr<Module> module) : module_(std::move(module)) {
    require(module_ != nullptr, "Recompute was given a module that is null");
}

void Recompute::set_input_gradient(bool needed) {
    Module::set_input_gradient(needed);
    module_->set_input_gradient(needed);
}

// lesson: recompute
Tensor Recompute::do_forward(const Tensor& x, Saved& saved) {
    Tensor y = module_->forward(x, saved.child(0));
    saved.child(0).clear();
    saved.keep("x", x);
    return y;
}

Tensor Recompute::do_backward_input(const Tensor& dy, Saved& saved) {
    module_->forward(saved.at("x"), saved.child(0));
    saved.drop("x");
    return module_->backward_input(dy, saved.child(0));
}

void Recompute::do_backward_weight(Saved& saved) {
    module_->backward_weight(saved.child(0));
}

Tensor Recompute::do_backward(const Tensor& dy, Saved& saved) {
    module_->forward(saved.at("x"), saved.child(0));
    saved.drop("x");
    return module_->backward(dy, saved.child(0));
}
// lesson: end

Tensor Recompute::do_infer(const Tensor& x, SourceLine at) {
    return module_->infer(x, at);
}

}  // namespace lockstep
