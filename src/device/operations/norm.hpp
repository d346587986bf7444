#pragma once

#include <cmath>

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
        make(result.mean, Shape{x.shape().matrix_rows()}, computed_in(x.dtype()));
        make(result.rstd, Shape{x.shape().matrix_rows()}, computed_in(x.dtype()));
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
        check.count("mean", mean, x.shape().matrix_rows(), computed_in(x.dtype()));
        check.count("rstd", rstd, x.shape().matrix_rows(), computed_in(x.dtype()));
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
        check.count("mean", mean, x.shape().matrix_rows(), computed_in(x.dtype()));
        check.count("rstd", rstd, x.shape().matrix_rows(), computed_in(x.dtype()));
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
        make(rstd, Shape{x.shape().matrix_rows()}, computed_in(x.dtype()));
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
        check.count("rstd", rstd, x.shape().matrix_rows(), computed_in(x.dtype()));
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
        check.count("rstd", rstd, x.shape().matrix_rows(), computed_in(x.dtype()));
    }
    OperandList operands() const {
        return {reads("dy", dy), reads("x", x), reads("rstd", rstd),
                adds_to("d_weight", d_weight)};
    }
    /// x^: 1. d_weight: multiply, add.
    std::int64_t flops() const { return 3 * x.elements(); }
    Derivation derivation() const { return Derivation::linear_in(0); }
};

// Norms over the rows, for each column separately.

/// The sum of each column of x (rows, columns), then the number of rows: (columns + 1).
/// The sums of a batch's parts add up to the batch's sums.
struct BatchSums {
    static constexpr const char* kName = "batch_sums";
    Tensor sums;
    Tensor x;

    void check(const OperandCheck& check) const { check.real("x", x); }
    void make(const auto& make) {
        make(sums, Shape{x.shape().columns() + 1}, computed_in(x.dtype()));
    }
    OperandList operands() const { return {reads("x", x), makes("sums", sums)}; }
    std::int64_t flops() const { return x.elements(); }
    Derivation derivation() const { return {}; }
    /// Without columns, the number of rows is the only element.
    void when_empty(const auto& fill) const {
        fill(sums,
             x.shape().columns() == 0 ? static_cast<double>(x.shape().matrix_rows()) : 0);
    }
};

/// The sum over the rows of (x - mean)^2, with the mean from the batch's sums.
struct BatchSquares {
    static constexpr const char* kName = "batch_squares";
    Tensor squares;
    Tensor x;
    Tensor sums;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.row("sums", sums, x.shape().columns() + 1, computed_in(x.dtype()));
    }
    void make(const auto& make) {
        make(squares, Shape{x.shape().columns()}, computed_in(x.dtype()));
    }
    OperandList operands() const {
        return {reads("x", x), reads("sums", sums), makes("squares", squares)};
    }
    /// Subtract, square, add.
    std::int64_t flops() const { return 3 * x.elements(); }
    Derivation derivation() const { return {}; }
    void when_empty(const auto& fill) const { fill(squares, 0); }
};

/// The batch's mean and rstd of each column, from the batch's sums and squares. The
/// running statistics move by the fraction `momentum` towards the batch's statistics.
struct BatchMoments {
    static constexpr const char* kName = "batch_moments";
    Tensor mean;
    Tensor rstd;
    Tensor sums;
    Tensor squares;
    RunningMoments running;  ///< none: nothing is kept
    double epsilon = 0;

    void check(const OperandCheck& check) const {
        check.real("squares", squares);
        const std::int64_t columns = squares.shape().columns();
        check.row("squares", squares, columns, computed_in(squares.dtype()));
        check.row("sums", sums, columns + 1, squares.dtype());
        if (running.mean || running.variance) {
            check.row("running mean", running.mean, columns, squares.dtype());
            check.row("running variance", running.variance, columns, squares.dtype());
        }
        check.that(running.momentum >= 0 && running.momentum <= 1,
                   "momentum is {}; it must be in [0, 1]", running.momentum);
        check.that(epsilon >= 0, "epsilon is negative");
    }
    void make(const auto& make) {
        make(mean, squares.shape(), squares.dtype());
        make(rstd, squares.shape(), squares.dtype());
    }
    OperandList operands() const {
        const bool keeps{running.mean};
        return {reads("sums", sums),
                reads("squares", squares),
                only_if(keeps, updates("running mean", running.mean)),
                only_if(keeps, updates("running variance", running.variance)),
                makes("mean", mean),
                makes("rstd", rstd)};
    }
    /// Mean: 1. Variance, epsilon, square root, inverse: 4. Unbiased variance: 1, and 3
    /// for each of two running statistics.
    std::int64_t flops() const { return (running.mean ? 12 : 5) * squares.elements(); }
    Derivation derivation() const { return {}; }
};

/// y = (x - mean) * rstd * weight + bias, with a mean and a rstd for each column.
struct BatchNorm {
    static constexpr const char* kName = "batch_norm";
    Tensor y;
    Tensor x;
    Tensor mean;
    Tensor rstd;
    Tensor weight;
    Tensor bias;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        const std::int64_t columns = x.shape().columns();
        check.row("mean", mean, columns, computed_in(x.dtype()));
        check.row("rstd", rstd, columns, computed_in(x.dtype()));
        check.row("weight", weight, columns, x.dtype());
        check.row("bias", bias, columns, x.dtype());
    }
    void make(const auto& make) { make(y, x.shape(), x.dtype()); }
    OperandList operands() const {
        return {reads("x", x),           reads("mean", mean), reads("rstd", rstd),
                reads("weight", weight), reads("bias", bias), makes("y", y)};
    }
    /// Subtract, multiply. Affine: 2.
    std::int64_t flops() const { return 4 * x.elements(); }
    Derivation derivation() const { return {}; }
};

/// The sums of dy, and of dy * x^ with x^ = (x - mean) * rstd, over the rows: (2,
/// columns). The sums of a batch's parts add up to the batch's sums.
struct BatchNormBackwardSums {
    static constexpr const char* kName = "batch_norm_backward_sums";
    Tensor sums;
    Tensor dy;
    Tensor x;
    Tensor mean;
    Tensor rstd;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.like("dy", dy, "x", x);
        check.row("mean", mean, x.shape().columns(), computed_in(x.dtype()));
        check.row("rstd", rstd, x.shape().columns(), computed_in(x.dtype()));
    }
    void make(const auto& make) {
        make(sums, Shape{2, x.shape().columns()}, computed_in(x.dtype()));
    }
    OperandList operands() const {
        return {reads("dy", dy), reads("x", x), reads("mean", mean), reads("rstd", rstd),
                makes("sums", sums)};
    }
    /// x^: 2. Sum of dy: 1. Sum of dy * x^: multiply, add.
    std::int64_t flops() const { return 5 * x.elements(); }
    Derivation derivation() const { return Derivation::linear_in(0); }
    void when_empty(const auto& fill) const { fill(sums, 0); }
};

/// dx = rstd * weight * (dy - sums[0] / count - x^ * sums[1] / count), with the sums and
/// the number of rows of the whole batch.
struct BatchNormBackwardInput {
    static constexpr const char* kName = "batch_norm_backward_input";
    Tensor dx;
    Tensor dy;
    Tensor x;
    Tensor weight;
    Tensor mean;
    Tensor rstd;
    Tensor sums;
    Tensor count;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.like("dy", dy, "x", x);
        const std::int64_t columns = x.shape().columns();
        const DType computed = computed_in(x.dtype());
        check.row("weight", weight, columns, x.dtype());
        check.row("mean", mean, columns, computed);
        check.row("rstd", rstd, columns, computed);
        check.shape("sums", sums, {2, columns}, computed);
        check.row("count", count, 1, computed);
    }
    void make(const auto& make) { make(dx, x.shape(), x.dtype()); }
    OperandList operands() const {
        return {reads("dy", dy),       reads("x", x),       reads("weight", weight),
                reads("mean", mean),   reads("rstd", rstd), reads("sums", sums),
                reads("count", count), makes("dx", dx)};
    }
    /// x^: 2. The two means: 3. rstd and weight: 1.
    std::int64_t flops() const { return 6 * x.elements(); }
    Derivation derivation() const { return {}; }
};

using NormOperations =
    OperationList<LayerNorm, LayerNormBackwardInput, LayerNormBackwardWeight, RmsNorm,
                  RmsNormBackwardInput, RmsNormBackwardWeight, BatchSums, BatchSquares,
                  BatchMoments, BatchNorm, BatchNormBackwardSums, BatchNormBackwardInput>;

}  // namespace lockstep::ops
