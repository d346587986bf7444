#include <fmt/format.h>

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

namespace {

/// What swiglu makes of x, where it has a gate for each of the rest.
Shape gated_shape(const Check& check, const Tensor& x) {
    check.real("x", x);
    check.that(x.shape().dimensions() > 0 && x.shape().columns() % 2 == 0, [&] {
        return fmt::format(
            "x has shape {}; an even number of columns is expected, the "
            "gate's and as many others",
            x.shape().text());
    });
    return x.shape().with_last(x.shape().columns() / 2);
}

}  // namespace

Tensor Device::swiglu(const Tensor& x, SourceLine at) {
    const Shape shape = gated_shape(Check(*this, "swiglu", at), x);
    Tensor y = empty(shape, x.dtype(), at);
    run({"swiglu", at, flops::kSwiglu * y.elements()}, {&x}, {&y},
        [&] { do_swiglu(y, x); });
    return y;
}

Tensor Device::swiglu_backward(const Tensor& x, const Tensor& dy, SourceLine at) {
    const Check check(*this, "swiglu_backward", at);
    const Shape shape = gated_shape(check, x);
    check.dtype("dy", dy, x.dtype());
    check.matrix("dy", dy, shape.rows(), shape.columns());
    Tensor dx = empty(x.shape(), x.dtype(), at);
    run({"swiglu_backward", at, flops::kSwigluBackward * dy.elements(), Charge::kOperands,
         Derivation::linear_in(1)},
        {&x, &dy}, {&dx}, [&] { do_swiglu_backward(dx, x, dy); });
    return dx;
}

}  // namespace lockstep
