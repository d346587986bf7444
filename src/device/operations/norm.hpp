#pragma once

#include <cmath>
#include <tuple>

#include "src/device/operation.hpp"

namespace lockstep::ops {

// Norms over the columns.

struct LayerNorm {
    static constexpr const char* kName = "layer_norm";
    Normalized result;
    Tensor x;
    Tensor weight;
    Tensor bias;
    double epsilon = 0;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.row("weight", weight, x.shape().columns(), x.dtype());
        check.row("bias", bias, x.shape().columns(), x.dtype());
        check.that(epsilon >= 0, "epsilon is negative");
    }
    void make(const auto& make) {
        make(result.y, x.shape(), x.dtype());
        make(result.mean, Shape{x.shape().rows()}, computed_in(x.dtype()));
        make(result.rstd, Shape{x.shape().rows()}, computed_in(x.dtype()));
    }
    OperandList operands() const {
        return {
            reads("x", x),        reads("weight", weight),    reads("bias", bias),
            makes("y", result.y), makes("mean", result.mean), makes("rstd", result.rstd)};
    }
    /// Mean: 1. Variance: subtract, square, add. Normalize: subtract, multiply.
    /// Affine: 2.
    std::int64_t flops() const { return 8 * x.elements(); }
    Derivation derivation() const { return {}; }
    void when_empty(const auto& fill) const {
        fill(result.mean, 0);
        fill(result.rstd, 1 / std::sqrt(epsilon));
    }
};

/// With g = dy * weight and x^ = (x - mean) * rstd:
/// dx = rstd * (g - mean(g) - x^ * mean(g * x^)).
struct LayerNormBackwardInput {
    static constexpr const char* kName = "layer_norm_backward_input";
    Tensor dx;
    Tensor dy;
    Tensor x;
    Tensor weight;
    Tensor mean;
    Tensor rstd;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.like("dy", dy, "x", x);
        check.row("weight", weight, x.shape().columns(), x.dtype());
        check.count("mean", mean, x.shape().rows(), computed_in(x.dtype()));
        check.count("rstd", rstd, x.shape().rows(), computed_in(x.dtype()));
    }
    void make(const auto& make) { make(dx, x.shape(), x.dtype()); }
    OperandList operands() const {
        return {reads("dy", dy),     reads("x", x),       reads("weight", weight),
                reads("mean", mean), reads("rstd", rstd), makes("dx", dx)};
    }
    /// x^: 2. dy w: 1. Two sums: 3. Combination: 5.
    std::int64_t flops() const { return 11 * x.elements(); }
    Derivation derivation() const { return Derivation::linear_in(0); }
};

/// d_weight += sum over rows of dy * (x - mean) * rstd; d_bias += sum over rows of dy.
struct LayerNormBackwardWeight {
    static constexpr const char* kName = "layer_norm_backward_weight";
    Tensor d_weight;
    Tensor d_bias;
    Tensor dy;
    Tensor x;
    Tensor mean;
    Tensor rstd;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.like("dy", dy, "x", x);
        check.row("d_weight", d_weight, x.shape().columns(), x.dtype());
        check.row("d_bias", d_bias, x.shape().columns(), x.dtype());
        check.count("mean", mean, x.shape().rows(), computed_in(x.dtype()));
        check.count("rstd", rstd, x.shape().rows(), computed_in(x.dtype()));
    }
    OperandList operands() const {
        return {reads("dy", dy),
                reads("x", x),
                reads("mean", mean),
                reads("rstd", rstd),
                adds_to("d_weight", d_weight),
                adds_to("d_bias", d_bias)};
    }
    /// x^: 2. d_weight: multiply, add. d_bias: 1.
    std::int64_t flops() const { return 5 * x.elements(); }
    Derivation derivation() const { return Derivation::linear_in(0); }
};

/// y = x * rstd * weight, with rstd = 1 / sqrt(mean(x^2) + epsilon).
struct RmsNorm {
    static constexpr const char* kName = "rms_norm";
    Tensor y;
    Tensor rstd;
    Tensor x;
    Tensor weight;
    double epsilon = 0;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.row("weight", weight, x.shape().columns(), x.dtype());
        check.that(epsilon >= 0, "epsilon is negative");
    }
    void make(const auto& make) {
        make(y, x.shape(), x.dtype());
        make(rstd, Shape{x.shape().rows()}, computed_in(x.dtype()));
    }
    OperandList operands() const {
        return {reads("x", x), reads("weight", weight), makes("y", y),
                makes("rstd", rstd)};
    }
    /// Square, add; normalize: 1; gain: 1.
    std::int64_t flops() const { return 4 * x.elements(); }
    Derivation derivation() const { return {}; }
    void when_empty(const auto& fill) const { fill(rstd, 1 / std::sqrt(epsilon)); }
};

/// With g = dy * weight and x^ = x * rstd: dx = rstd * (g - x^ * mean(g * x^)).
struct RmsNormBackwardInput {
    static constexpr const char* kName = "rms_norm_backward_input";
    Tensor dx;
    Tensor dy;
    Tensor x;
    Tensor weight;
    Tensor rstd;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.like("dy", dy, "x", x);
        check.row("weight", weight, x.shape().columns(), x.dtype());
        check.count("rstd", rstd, x.shape().rows(), computed_in(x.dtype()));
    }
    void make(const auto& make) { make(dx, x.shape(), x.dtype()); }
    OperandList operands() const {
        return {reads("dy", dy), reads("x", x), reads("weight", weight),
                reads("rstd", rstd), makes("dx", dx)};
    }
    /// x^: 1. dy w: 1. Sum: 2. Combination: 3.
    std::int64_t flops() const { return 7 * x.elements(); }
    Derivation derivation() const { return Derivation::linear_in(0); }
};

/// d_weight += sum over rows of dy * x * rstd.
struct RmsNormBackwardWeight {
    static constexpr const char* kName = "rms_norm_backward_weight";
    Tensor d_weight;
    Tensor dy;
    Tensor x;
    Tensor rstd;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.like("dy", dy, "x", x);
        check.row("d_weight", d_weight, x.shape().columns(), x.dtype());
        check.count("rstd", rstd, x.shape().rows(), computed_in(x.dtype()));
    }
    OperandList operands() const {
        return {reads("dy", dy), reads("x", x), reads("rstd", rstd),
                adds_to("d_weight", d_weight)};
    }
    /// x^: 1. d_weight: multiply, add.
    std::int64_t flops() const { return 3 * x.elements(); }
    Derivation derivation() const { return Derivation::linear_in(0); }
};

using NormOperations =
    std::tuple<LayerNorm, LayerNormBackwardInput, LayerNormBackwardWeight, RmsNorm,
               RmsNormBackwardInput, RmsNormBackwardWeight>;

}  // namespace lockstep::ops
