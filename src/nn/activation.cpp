#include "src/nn/activation.hpp"

namespace lockstep {

Tensor Tanh::do_forward(const Tensor& x, Saved& saved) {
    Tensor y = device_.tanh(x);
    if (input_gradient()) saved.keep("y", y);
    return y;
}

// dx = dy (1 - y^2)
Tensor Tanh::do_backward_input(const Tensor& dy, Saved& saved) {
    if (!input_gradient()) return {};
    Tensor dx = device_.tanh_backward(saved.at("y"), dy);
    saved.drop("y");
    return dx;
}

Tensor Gelu::do_forward(const Tensor& x, Saved& saved) {
    if (input_gradient()) saved.keep("x", x);
    return device_.gelu(x, form_);
}

// dx = dy (Phi(x) + x phi(x)) with the normal density phi, if the form is exact
Tensor Gelu::do_backward_input(const Tensor& dy, Saved& saved) {
    if (!input_gradient()) return {};
    Tensor dx = device_.gelu_backward(saved.at("x"), dy, form_);
    saved.drop("x");
    return dx;
}

Tensor Swiglu::do_forward(const Tensor& x, Saved& saved) {
    if (input_gradient()) saved.keep("x", x);
    return device_.swiglu(x);
}

// d_gate = dy rest silu'(gate), d_rest = dy silu(gate)
Tensor Swiglu::do_backward_input(const Tensor& dy, Saved& saved) {
    if (!input_gradient()) return {};
    Tensor dx = device_.swiglu_backward(saved.at("x"), dy);
    saved.drop("x");
    return dx;
}

}  // namespace lockstep
