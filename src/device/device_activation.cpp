#include "src/device/check.hpp"
#include "src/device/device.hpp"
#include "src/device/flops.hpp"

namespace lockstep {

Tensor Device::tanh(const Tensor& x, SourceLine at) {
    Check(*this, "tanh", at).real("x", x);
    Tensor y = empty(x.shape(), x.dtype(), at);
    run({"tanh", at, flops::kTanh * x.elements()}, {&x}, {&y}, [&] { do_tanh(y, x); });
    return y;
}

Tensor Device::tanh_backward(const Tensor& y, const Tensor& dy, SourceLine at) {
    const Check check(*this, "tanh_backward", at);
    check.real("y", y);
    check.like("dy", dy, "y", y);
    Tensor dx = empty(y.shape(), y.dtype(), at);
    run({"tanh_backward", at, flops::kTanhBackward * y.elements(), Charge::kOperands,
         Derivation::linear_in(1)},
        {&y, &dy}, {&dx}, [&] { do_tanh_backward(dx, y, dy); });
    return dx;
}

Tensor Device::gelu(const Tensor& x, SourceLine at) {
    Check(*this, "gelu", at).real("x", x);
    Tensor y = empty(x.shape(), x.dtype(), at);
    run({"gelu", at, flops::kGelu * x.elements()}, {&x}, {&y}, [&] { do_gelu(y, x); });
    return y;
}

Tensor Device::gelu_backward(const Tensor& x, const Tensor& dy, SourceLine at) {
    const Check check(*this, "gelu_backward", at);
    check.real("x", x);
    check.like("dy", dy, "x", x);
    Tensor dx = empty(x.shape(), x.dtype(), at);
    run({"gelu_backward", at, flops::kGeluBackward * x.elements(), Charge::kOperands,
         Derivation::linear_in(1)},
        {&x, &dy}, {&dx}, [&] { do_gelu_backward(dx, x, dy); });
    return dx;
}

}  // namespace lockstep
