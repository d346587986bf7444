#include <cmath>
#include <string>

#include "src/device/check.hpp"
#include "src/device/device.hpp"
#include "src/device/flops.hpp"

namespace lockstep {

Normalized Device::layer_norm(const Tensor& x, const Tensor& weight, const Tensor& bias,
                              double epsilon, SourceLine at) {
    const Check check(*this, "layer_norm", at);
    const Shape& shape = x.shape();
    check.real("x", x);
    check.row("weight", weight, shape.columns(), x.dtype());
    check.row("bias", bias, shape.columns(), x.dtype());
    check.that(epsilon >= 0, [] { return std::string("epsilon is negative"); });
    Normalized result{empty(shape, x.dtype(), at), empty({shape.rows()}, x.dtype(), at),
                      empty({shape.rows()}, x.dtype(), at)};
    run(
        {"layer_norm", at, flops::kLayerNorm * x.elements()}, {&x, &weight, &bias},
        {&result.y, &result.mean, &result.rstd},
        [&] { do_layer_norm(result, x, weight, bias, epsilon); },
        [&] {
            if (shape.rows() == 0) return;
            do_fill(result.mean, 0);
            do_fill(result.rstd, 1 / std::sqrt(epsilon));
        });
    return result;
}

Tensor Device::layer_norm_backward_input(const Tensor& dy, const Tensor& x,
                                         const Tensor& weight, const Normalized& saved,
                                         SourceLine at) {
    const Check check(*this, "layer_norm_backward_input", at);
    check.real("x", x);
    check.like("dy", dy, "x", x);
    check.row("weight", weight, x.shape().columns(), x.dtype());
    check.count("mean", saved.mean, x.shape().rows(), x.dtype());
    check.count("rstd", saved.rstd, x.shape().rows(), x.dtype());
    Tensor dx = empty(x.shape(), x.dtype(), at);
    run({"layer_norm_backward_input", at, flops::kLayerNormBackwardInput * x.elements(),
         Charge::kOperands, Derivation::linear_in(0)},
        {&dy, &x, &weight, &saved.mean, &saved.rstd}, {&dx},
        [&] { do_layer_norm_backward_input(dx, dy, x, weight, saved); });
    return dx;
}

void Device::layer_norm_backward_weight(const Tensor& d_weight, const Tensor& d_bias,
                                        const Tensor& dy, const Tensor& x,
                                        const Normalized& saved, SourceLine at) {
    const Check check(*this, "layer_norm_backward_weight", at);
    check.real("x", x);
    check.like("dy", dy, "x", x);
    check.row("d_weight", d_weight, x.shape().columns(), x.dtype());
    check.row("d_bias", d_bias, x.shape().columns(), x.dtype());
    check.count("mean", saved.mean, x.shape().rows(), x.dtype());
    check.count("rstd", saved.rstd, x.shape().rows(), x.dtype());
    check.apart("d_weight", d_weight, "d_bias", d_bias);
    for (const Tensor* destination : {&d_weight, &d_bias}) {
        const char* name = destination == &d_weight ? "d_weight" : "d_bias";
        check.apart(name, *destination, "dy", dy);
        check.apart(name, *destination, "x", x);
        check.apart(name, *destination, "mean", saved.mean);
        check.apart(name, *destination, "rstd", saved.rstd);
    }
    run({"layer_norm_backward_weight", at, flops::kLayerNormBackwardWeight * x.elements(),
         Charge::kOperands, Derivation::adding(Derivation::linear_in(0))},
        {&dy, &x, &saved.mean, &saved.rstd, &d_weight, &d_bias}, {&d_weight, &d_bias},
        [&] { do_layer_norm_backward_weight(d_weight, d_bias, dy, x, saved); });
}

Normalized Device::rms_norm(const Tensor& x, const Tensor& weight, double epsilon,
                            SourceLine at) {
    const Check check(*this, "rms_norm", at);
    const Shape& shape = x.shape();
    check.real("x", x);
    check.row("weight", weight, shape.columns(), x.dtype());
    check.that(epsilon >= 0, [] { return std::string("epsilon is negative"); });
    Normalized result{
        empty(shape, x.dtype(), at), {}, empty({shape.rows()}, x.dtype(), at)};
    run(
        {"rms_norm", at, flops::kRmsNorm * x.elements()}, {&x, &weight},
        {&result.y, &result.rstd},
        [&] { do_rms_norm(result.y, result.rstd, x, weight, epsilon); },
        [&] {
            if (shape.rows() > 0) do_fill(result.rstd, 1 / std::sqrt(epsilon));
        });
    return result;
}

Tensor Device::rms_norm_backward_input(const Tensor& dy, const Tensor& x,
                                       const Tensor& weight, const Tensor& rstd,
                                       SourceLine at) {
    const Check check(*this, "rms_norm_backward_input", at);
    check.real("x", x);
    check.like("dy", dy, "x", x);
    check.row("weight", weight, x.shape().columns(), x.dtype());
    check.count("rstd", rstd, x.shape().rows(), x.dtype());
    Tensor dx = empty(x.shape(), x.dtype(), at);
    run({"rms_norm_backward_input", at, flops::kRmsNormBackwardInput * x.elements(),
         Charge::kOperands, Derivation::linear_in(0)},
        {&dy, &x, &weight, &rstd}, {&dx},
        [&] { do_rms_norm_backward_input(dx, dy, x, weight, rstd); });
    return dx;
}

void Device::rms_norm_backward_weight(const Tensor& d_weight, const Tensor& dy,
                                      const Tensor& x, const Tensor& rstd,
                                      SourceLine at) {
    const Check check(*this, "rms_norm_backward_weight", at);
    check.real("x", x);
    check.like("dy", dy, "x", x);
    check.row("d_weight", d_weight, x.shape().columns(), x.dtype());
    check.count("rstd", rstd, x.shape().rows(), x.dtype());
    check.apart("d_weight", d_weight, "dy", dy);
    check.apart("d_weight", d_weight, "x", x);
    check.apart("d_weight", d_weight, "rstd", rstd);
    run({"rms_norm_backward_weight", at, flops::kRmsNormBackwardWeight * x.elements(),
         Charge::kOperands, Derivation::adding(Derivation::linear_in(0))},
        {&dy, &x, &rstd, &d_weight}, {&d_weight},
        [&] { do_rms_norm_backward_weight(d_weight, dy, x, rstd); });
}

}  // namespace lockstep
