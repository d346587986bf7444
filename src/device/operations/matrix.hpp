#pragma once

#include <tuple>

#include "src/device/operation.hpp"

namespace lockstep::ops {

// Linear algebra.

/// destination (m, n) (+)= op(a) (m, k) op(b) (k, n).
struct Matmul {
    static constexpr const char* kName = "matmul";
    Tensor destination;
    Tensor a;
    Tensor b;
    MatmulOptions options;
    bool into = false;  ///< the destination is given

    std::int64_t m() const {
        return options.transpose_a ? a.shape().columns() : a.shape().rows();
    }
    std::int64_t k() const {
        return options.transpose_a ? a.shape().rows() : a.shape().columns();
    }
    std::int64_t n() const {
        return options.transpose_b ? b.shape().rows() : b.shape().columns();
    }

    void check(const OperandCheck& check) const {
        check.that(into || !options.accumulate,
                   "accumulate without a destination; use matmul_into");
        check.real("a", a);
        check.dtype("b", b, a.dtype());
        const std::int64_t b_rows =
            options.transpose_b ? b.shape().columns() : b.shape().rows();
        check.that(k() == b_rows, "a {}{} times b {}{}: the inner extents are {} and {}",
                   a.shape(), options.transpose_a ? " transposed" : "", b.shape(),
                   options.transpose_b ? " transposed" : "", k(), b_rows);
        check.that(n() == 0 || m() <= kMostElements / n(),
                   "a {} times b {} has {} x {} elements, more than there can be",
                   a.shape(), b.shape(), m(), n());
        if (!into) return;
        check.dtype("destination", destination, a.dtype());
        check.matrix("destination", destination, m(), n());
    }
    /// A result keeps a's first dimensions.
    void make(const auto& make) {
        if (into) return;
        const bool keeps_shape = !options.transpose_a && a.shape().dimensions() > 0;
        make(destination, keeps_shape ? a.shape().with_last(n()) : Shape{m(), n()},
             a.dtype());
    }
    OperandList operands() const {
        const auto use = options.accumulate ? Operand::Use::added_to
                         : into             ? Operand::Use::written
                                            : Operand::Use::result;
        return {reads("a", a), reads("b", b),
                Operand{"destination", &destination, use, destination.bytes()}};
    }
    std::int64_t flops() const { return 2 * m() * k() * n(); }
    Derivation derivation() const { return Derivation::linear_in(0, 1); }
    /// The sum of no products is zero.
    void when_empty(const auto& fill) const {
        if (!options.accumulate) fill(destination, 0);
    }
};

/// y (rows, columns) += bias (columns).
struct AddBias {
    static constexpr const char* kName = "add_bias";
    Tensor y;
    Tensor bias;

    void check(const OperandCheck& check) const {
        check.real("y", y);
        check.row("bias", bias, y.shape().columns(), y.dtype());
    }
    OperandList operands() const { return {adds_to("y", y), reads("bias", bias)}; }
    std::int64_t flops() const { return y.elements(); }
    Derivation derivation() const { return Derivation::linear_in(1); }
};

/// destination (columns) += the sum of the rows of x (rows, columns).
struct AccumulateRows {
    static constexpr const char* kName = "accumulate_rows";
    Tensor destination;
    Tensor x;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.row("destination", destination, x.shape().columns(), x.dtype());
    }
    OperandList operands() const {
        return {adds_to("destination", destination), reads("x", x)};
    }
    std::int64_t flops() const { return x.elements(); }
    Derivation derivation() const { return Derivation::linear_in(1); }
};

/// x[i] *= factors[i], row by row.
struct ScaleRows {
    static constexpr const char* kName = "scale_rows";
    Tensor x;
    Tensor factors;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.count("factors", factors, x.shape().rows(), x.dtype());
    }
    OperandList operands() const { return {updates("x", x), reads("factors", factors)}; }
    std::int64_t flops() const { return x.elements(); }
    Derivation derivation() const { return {}; }
};

/// destination[i] = the sum over j of a[i][j] b[i][j].
struct RowProducts {
    static constexpr const char* kName = "row_products";
    Tensor destination;
    Tensor a;
    Tensor b;

    void check(const OperandCheck& check) const {
        check.real("a", a);
        check.like("b", b, "a", a);
        check.count("destination", destination, a.shape().rows(), a.dtype());
    }
    OperandList operands() const {
        return {reads("a", a), reads("b", b), writes("destination", destination)};
    }
    std::int64_t flops() const { return 2 * a.elements(); }
    Derivation derivation() const { return Derivation::linear_in(0, 1); }
    void when_empty(const auto& fill) const { fill(destination, 0); }
};

/// Columns of x (rows, columns) become orthonormal, in order.
struct Orthonormalize {
    static constexpr const char* kName = "orthonormalize";
    Tensor x;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        const Shape& shape = x.shape();
        check.that(shape.columns() <= shape.rows(),
                   "x has shape {}, that is {} columns of {} elements, of which {} at "
                   "most can be orthogonal",
                   shape, shape.columns(), shape.rows(), shape.rows());
    }
    OperandList operands() const { return {updates("x", x)}; }
    /// A column of n numbers is cleared twice of each that comes before it, by a product
    /// and a sum of 2n flops each; it is measured twice, 2n each, and scaled, n.
    std::int64_t flops() const { return x.elements() * (4 * x.shape().columns() + 1); }
    Derivation derivation() const { return {}; }
};

using MatrixOperations =
    std::tuple<Matmul, AddBias, AccumulateRows, ScaleRows, RowProducts, Orthonormalize>;

}  // namespace lockstep::ops
