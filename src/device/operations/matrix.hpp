#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "src/device/operation.hpp"

namespace lockstep::ops {

// Linear algebra.

inline void check_row_by_row(const OperandCheck& check, const MatmulOptions& options) {
    check.that(!(options.row_by_row && options.transpose_a),
               "row_by_row is not possible if a is transposed");
}

/// destination (m, n) (+)= op(a) (m, k) op(b) (k, n).
struct Matmul {
    static constexpr const char* kName = "matmul";
    Tensor destination;
    Tensor a;
    Tensor b;
    MatmulOptions options;
    bool into = false;  ///< the destination is given

    std::int64_t m() const {
        return options.transpose_a ? a.shape().columns() : a.shape().matrix_rows();
    }
    std::int64_t k() const {
        return options.transpose_a ? a.shape().matrix_rows() : a.shape().columns();
    }
    std::int64_t n() const {
        return options.transpose_b ? b.shape().matrix_rows() : b.shape().columns();
    }

    void check(const OperandCheck& check) const {
        check.that(into || !options.accumulate,
                   "accumulate without a destination; use matmul_into");
        check_row_by_row(check, options);
        check.real("a", a);
        check.dtype("b", b, a.dtype());
        const std::int64_t b_rows =
            options.transpose_b ? b.shape().columns() : b.shape().matrix_rows();
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
    std::int64_t least_extent() const { return std::min({m(), k(), n()}); }
    Derivation derivation() const { return Derivation::linear_in(0, 1); }
    /// The sum of no products is zero.
    void when_empty(const auto& fill) const {
        if (!options.accumulate) fill(destination, 0);
    }
};

/// One product for each group of rows of a (M, k). Group g has rows[g] rows, and the
/// groups follow each other. b has one matrix for each group, one below the other, and
///
///     destination (M, n)    rows g = a's rows g times op(b[g])
///
/// If a is transposed, b (M, n) has the same groups, and the destination has the
/// matrices:
///
///     destination (G k, n)  matrix g (+)= a's rows g, transposed, times b's rows g
struct GroupedMatmul {
    static constexpr const char* kName = "grouped_matmul";
    Tensor destination;
    Tensor a;
    Tensor b;
    std::vector<std::int64_t> rows;
    MatmulOptions options;

    std::int64_t groups() const { return static_cast<std::int64_t>(rows.size()); }
    std::int64_t n() const {
        return options.transpose_b ? b.shape().matrix_rows() / groups()
                                   : b.shape().columns();
    }

    void check(const OperandCheck& check) const {
        check.real("a", a);
        check.dtype("b", b, a.dtype());
        check_row_by_row(check, options);
        check.that(!(options.transpose_a && options.transpose_b),
                   "both a and b are transposed; at most one of them may be");
        check.that(!rows.empty(), "no group of rows; at least one is expected");
        const std::int64_t all = a.shape().matrix_rows(), k = a.shape().columns();
        check.that(groups() <= kMostElements / std::max<std::int64_t>(k, 1),
                   "{} groups of a {} are more than there can be", groups(), a.shape());
        std::int64_t left = all;
        for (const std::int64_t count : rows) {
            check.that(count >= 0 && count <= left,
                       "a group of {} rows; a has shape {}, that is {} rows; {} remain "
                       "after the earlier groups",
                       count, a.shape(), all, left);
            left -= count;
        }
        check.that(left == 0,
                   "the groups have {} rows in all, but a has shape {}, that is {} rows",
                   all - left, a.shape(), all);
        const std::int64_t many = options.transpose_a ? all
                                  : options.transpose_b
                                      ? b.shape().matrix_rows() / groups() * groups()
                                      : groups() * k;
        check.that(b.shape().matrix_rows() == many,
                   "b has shape {}, that is {} rows; for {} groups of a {}, {} rows are "
                   "expected",
                   b.shape(), b.shape().matrix_rows(), groups(), a.shape(), many);
        check.that(!options.transpose_b || b.shape().columns() == k,
                   "a {} times b {} transposed: the inner extents are {} and {}",
                   a.shape(), b.shape(), k, b.shape().columns());
        check.dtype("destination", destination, a.dtype());
        check.matrix("destination", destination, options.transpose_a ? groups() * k : all,
                     n());
    }
    /// Matrices of groups without rows are not read.
    OperandList operands() const {
        const auto use =
            options.accumulate ? Operand::Use::added_to : Operand::Use::written;
        const std::int64_t used =
            groups() - std::count(rows.begin(), rows.end(), std::int64_t{0});
        const auto of_used = [&](std::int64_t bytes) { return bytes / groups() * used; };
        const bool adds_to_used = options.transpose_a && options.accumulate;
        return {
            reads("a", a),
            sized(options.transpose_a ? b.bytes() : of_used(b.bytes()), reads("b", b)),
            Operand{"destination", &destination, use,
                    adds_to_used ? of_used(destination.bytes()) : destination.bytes()}};
    }
    std::int64_t flops() const { return 2 * a.elements() * n(); }
    /// Returns the extent for a group that has the mean number of rows.
    std::int64_t least_extent() const {
        return std::min({a.shape().matrix_rows() / groups(), a.shape().columns(), n()});
    }
    Derivation derivation() const { return Derivation::linear_in(0, 1); }
    /// The sum of no products is zero.
    void when_empty(const auto& fill) const {
        if (!options.accumulate) fill(destination, 0);
    }
    /// Calls visit(product) for each group, even for groups without rows.
    template <typename Visit>
    void each_group(Visit&& visit) const {
        const auto block = [](const Tensor& tensor, std::int64_t from,
                              std::int64_t count) {
            const std::int64_t columns = tensor.shape().columns();
            return tensor.slice(from * columns, count * columns)
                .reshaped({count, columns});
        };
        const std::int64_t in_b = b.shape().matrix_rows() / groups();
        const std::int64_t k = a.shape().columns();
        for (std::int64_t group = 0, from = 0; group < groups(); ++group) {
            const std::int64_t count = rows[static_cast<std::size_t>(group)];
            visit(Matmul{options.transpose_a ? block(destination, group * k, k)
                                             : block(destination, from, count),
                         block(a, from, count),
                         options.transpose_a ? block(b, from, count)
                                             : block(b, group * in_b, in_b),
                         options, true});
            from += count;
        }
    }
    /// Computes group by group: calls multiply(product) if the product has terms. If not,
    /// calls clear(matrix), unless the product is added to the matrix.
    void compute(const auto& multiply, const auto& clear) const {
        each_group([&](const Matmul& product) {
            if (product.a.elements() > 0)
                multiply(product);
            else if (product.destination.elements() > 0 && !options.accumulate)
                clear(product.destination);
        });
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
        check.count("factors", factors, x.shape().matrix_rows(), x.dtype());
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
        check.count("destination", destination, a.shape().matrix_rows(), a.dtype());
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
        check.that(shape.columns() <= shape.matrix_rows(),
                   "x has shape {}, that is {} columns of {} elements; at most {} such "
                   "columns can be orthogonal",
                   shape, shape.columns(), shape.matrix_rows(), shape.matrix_rows());
    }
    OperandList operands() const { return {updates("x", x)}; }
    /// Each earlier column's direction is removed twice from a column of n numbers, by a
    /// product and a sum of 2n flops each. The column is measured twice (2n flops each)
    /// and scaled (n flops).
    std::int64_t flops() const { return x.elements() * (4 * x.shape().columns() + 1); }
    Derivation derivation() const { return {}; }
};

using MatrixOperations = OperationList<Matmul, GroupedMatmul, AddBias, AccumulateRows,
                                       ScaleRows, RowProducts, Orthonormalize>;

}  // namespace lockstep::ops
