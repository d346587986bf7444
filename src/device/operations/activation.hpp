#pragma once

#include "src/device/operation.hpp"

namespace lockstep::ops {

// Activations, y = f(x), element by element except swiglu; the derivatives give dx.

struct Tanh {
    static constexpr const char* kName = "tanh";
    Tensor y;
    Tensor x;

    void check(const OperandCheck& check) const { check.real("x", x); }
    void make(const auto& make) { make(y, x.shape(), x.dtype()); }
    OperandList operands() const { return {reads("x", x), makes("y", y)}; }
    std::int64_t flops() const { return kTranscendental * x.elements(); }
    Derivation derivation() const { return {}; }
};

/// dx = dy (1 - y^2).
struct TanhBackward {
    static constexpr const char* kName = "tanh_backward";
    Tensor dx;
    Tensor y;
    Tensor dy;

    void check(const OperandCheck& check) const {
        check.real("y", y);
        check.like("dy", dy, "y", y);
    }
    void make(const auto& make) { make(dx, y.shape(), y.dtype()); }
    OperandList operands() const {
        return {reads("y", y), reads("dy", dy), makes("dx", dx)};
    }
    std::int64_t flops() const { return 3 * y.elements(); }
    Derivation derivation() const { return Derivation::linear_in(1); }
};

struct Sigmoid {
    static constexpr const char* kName = "sigmoid";
    Tensor y;
    Tensor x;

    void check(const OperandCheck& check) const { check.real("x", x); }
    void make(const auto& make) { make(y, x.shape(), x.dtype()); }
    OperandList operands() const { return {reads("x", x), makes("y", y)}; }
    std::int64_t flops() const { return (kTranscendental + 2) * x.elements(); }
    Derivation derivation() const { return {}; }
};

/// dx = dy y (1 - y).
struct SigmoidBackward {
    static constexpr const char* kName = "sigmoid_backward";
    Tensor dx;
    Tensor y;
    Tensor dy;

    void check(const OperandCheck& check) const {
        check.real("y", y);
        check.like("dy", dy, "y", y);
    }
    void make(const auto& make) { make(dx, y.shape(), y.dtype()); }
    OperandList operands() const {
        return {reads("y", y), reads("dy", dy), makes("dx", dx)};
    }
    std::int64_t flops() const { return 3 * y.elements(); }
    Derivation derivation() const { return Derivation::linear_in(1); }
};

struct Gelu {
    static constexpr const char* kName = "gelu";
    Tensor y;
    Tensor x;
    GeluForm form = GeluForm::exact;

    void check(const OperandCheck& check) const { check.real("x", x); }
    void make(const auto& make) { make(y, x.shape(), x.dtype()); }
    OperandList operands() const { return {reads("x", x), makes("y", y)}; }
    /// The argument of tanh needs 5 operations.
    std::int64_t flops() const {
        return (kTranscendental + (form == GeluForm::tanh ? 8 : 4)) * x.elements();
    }
    Derivation derivation() const { return {}; }
};

struct GeluBackward {
    static constexpr const char* kName = "gelu_backward";
    Tensor dx;
    Tensor x;
    Tensor dy;
    GeluForm form = GeluForm::exact;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.like("dy", dy, "x", x);
    }
    void make(const auto& make) { make(dx, x.shape(), x.dtype()); }
    OperandList operands() const {
        return {reads("x", x), reads("dy", dy), makes("dx", dx)};
    }
    /// Exact: erf and exp. With tanh: its argument needs 5 operations, its slope 4.
    std::int64_t flops() const {
        const std::int64_t each =
            form == GeluForm::tanh ? kTranscendental + 18 : 2 * kTranscendental + 8;
        return each * x.elements();
    }
    Derivation derivation() const { return Derivation::linear_in(1); }
};

/// Returns the shape of swiglu's result: half of x's columns are the gate.
inline Shape gated_shape(const Tensor& x) {
    return x.shape().with_last(x.shape().columns() / 2);
}
inline void check_gated(const OperandCheck& check, const Tensor& x) {
    check.real("x", x);
    check.that(x.shape().dimensions() > 0 && x.shape().columns() % 2 == 0,
               "x has shape {}; an even number of columns is expected, because half of "
               "them are the gate",
               x.shape());
}

/// y (rows, width) = silu(gate) * rest. x (rows, 2 width) has the gate, then the rest.
struct Swiglu {
    static constexpr const char* kName = "swiglu";
    Tensor y;
    Tensor x;

    void check(const OperandCheck& check) const { check_gated(check, x); }
    void make(const auto& make) { make(y, gated_shape(x), x.dtype()); }
    OperandList operands() const { return {reads("x", x), makes("y", y)}; }
    /// Sigmoid: exp, add, divide; times the gate, times the rest.
    std::int64_t flops() const { return (kTranscendental + 4) * y.elements(); }
    Derivation derivation() const { return {}; }
};

struct SwigluBackward {
    static constexpr const char* kName = "swiglu_backward";
    Tensor dx;
    Tensor x;
    Tensor dy;

    void check(const OperandCheck& check) const {
        check_gated(check, x);
        check.dtype("dy", dy, x.dtype());
        check.matrix("dy", dy, x.shape().matrix_rows(), x.shape().columns() / 2);
    }
    void make(const auto& make) { make(dx, x.shape(), x.dtype()); }
    OperandList operands() const {
        return {reads("x", x), reads("dy", dy), makes("dx", dx)};
    }
    /// Sigmoid; silu: 1; the gate's gradient: 5; the rest's gradient: 1.
    std::int64_t flops() const { return (kTranscendental + 9) * dy.elements(); }
    Derivation derivation() const { return Derivation::linear_in(1); }
};

using ActivationOperations = OperationList<Tanh, TanhBackward, Sigmoid, SigmoidBackward,
                                           Gelu, GeluBackward, Swiglu, SwigluBackward>;

}  // namespace lockstep::ops
