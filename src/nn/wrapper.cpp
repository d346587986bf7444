#include "src/nn/wrapper.hpp"

#include "src/core/require.hpp"

namespace lockstep {

Wrapper::Wrapper(const char* who, std::unique_ptr<Module> module)
    : module_(std::move(module)) {
    require(module_ != nullptr, "{} was given a module that is null", who);
}

void Wrapper::set_input_gradient(bool needed) {
    Module::set_input_gradient(needed);
    module_->set_input_gradient(needed);
}

Tensor Wrapper::do_forward(const Tensor& x, Saved& saved) {
    return module_->forward(x, saved.child(0));
}

Tensor Wrapper::do_backward_input(const Tensor& dy, Saved& saved) {
    return module_->backward_input(dy, saved.child(0));
}

void Wrapper::do_backward_weight(Saved& saved) {
    module_->backward_weight(saved.child(0));
}

Tensor Wrapper::do_backward(const Tensor& dy, Saved& saved) {
    return module_->backward(dy, saved.child(0));
}

Tensor Wrapper::do_infer(const Tensor& x, SourceLine at) {
    return module_->infer(x, at);
}

}  // namespace lockstep
