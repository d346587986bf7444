#include "src/nn/recompute.hpp"

namespace lockstep {

Recompute::Recompute(std::unique_ptr<Module> module)
    : Wrapper("Recompute", std::move(module)) {}

// lesson: recompute
Tensor Recompute::do_forward(const Tensor& x, Saved& saved) {
    Tensor y = Wrapper::do_forward(x, saved);
    saved.child(0).clear();
    saved.keep("x", x);
    return y;
}

void Recompute::forward_again(Saved& saved) {
    Wrapper::do_forward(saved.at("x"), saved);
    saved.drop("x");
}

Tensor Recompute::do_backward_input(const Tensor& dy, Saved& saved) {
    forward_again(saved);
    return Wrapper::do_backward_input(dy, saved);
}

Tensor Recompute::do_backward(const Tensor& dy, Saved& saved) {
    forward_again(saved);
    return Wrapper::do_backward(dy, saved);
}
// lesson: end

}  // namespace lockstep
