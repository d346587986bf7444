#pragma once

#include <limits>

#include "src/device/operation.hpp"

namespace lockstep::ops {

// Softmax and losses, row by row.

struct Softmax {
    static constexpr const char* kName = "softmax";
    /// Maximum, subtract, exp, sum; divide.
    static constexpr std::int64_t kFlopsOfElement = kTranscendental + 4;
    Tensor y;
    Tensor x;
    SoftmaxOptions options;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        const Shape& shape = x.shape();
        check.that(!options.causal || shape.dimensions() >= 2,
                   "x has shape {}; with a causal mask, (…, queries, keys) is expected",
                   shape);
        if (!options.causal) return;
        check.tokens("queries", options.queries, shape[shape.dimensions() - 2]);
        check.tokens("keys", options.keys, shape.columns());
    }
    void make(const auto& make) { make(y, x.shape(), x.dtype()); }
    OperandList operands() const { return {reads("x", x), makes("y", y)}; }
    std::int64_t flops() const { return kFlopsOfElement * x.elements(); }
    Derivation derivation() const { return {}; }
};

/// dx = y * (dy - sum(y * dy)).
struct SoftmaxBackward {
    static constexpr const char* kName = "softmax_backward";
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
    std::int64_t flops() const { return 4 * y.elements(); }
    Derivation derivation() const { return Derivation::linear_in(1); }
};

/// y (rows) = log of the sum of exp(x) of each row.
struct LogSumExp {
    static constexpr const char* kName = "log_sum_exp";
    Tensor y;
    Tensor x;

    void check(const OperandCheck& check) const { check.real("x", x); }
    void make(const auto& make) {
        make(y, Shape{x.shape().matrix_rows()}, computed_in(x.dtype()));
    }
    OperandList operands() const { return {reads("x", x), makes("y", y)}; }
    /// Maximum, subtract, exp, sum.
    std::int64_t flops() const { return (kTranscendental + 3) * x.elements(); }
    Derivation derivation() const { return {}; }
    /// The sum of no exponentials is 0, and its logarithm is -infinity.
    void when_empty(const auto& fill) const {
        fill(y, -std::numeric_limits<double>::infinity());
    }
};

/// y = x / (the sum of its row + 1e-20).
struct NormalizeRows {
    static constexpr const char* kName = "normalize_rows";
    Tensor y;
    Tensor x;

    void check(const OperandCheck& check) const { check.real("x", x); }
    void make(const auto& make) { make(y, x.shape(), x.dtype()); }
    OperandList operands() const { return {reads("x", x), makes("y", y)}; }
    std::int64_t flops() const { return 2 * x.elements(); }
    Derivation derivation() const { return {}; }
};

/// dx = (dy - sum(y * dy)) / (the sum of x's row + 1e-20), with y = NormalizeRows of x.
struct NormalizeRowsBackward {
    static constexpr const char* kName = "normalize_rows_backward";
    Tensor dx;
    Tensor x;
    Tensor dy;

    void check(const OperandCheck& check) const {
        check.real("x", x);
        check.like("dy", dy, "x", x);
    }
    void make(const auto& make) { make(dx, x.shape(), x.dtype()); }
    OperandList operands() const {
        return {reads("x", x), reads("dy", dy), makes("dx", dx)};
    }
    std::int64_t flops() const { return 5 * x.elements(); }
    Derivation derivation() const { return Derivation::linear_in(1); }
};

/// losses (rows) = -log softmax(logits)[target].
struct CrossEntropy {
    static constexpr const char* kName = "cross_entropy";
    Tensor losses;
    Tensor logits;
    Tensor targets;

    void check(const OperandCheck& check) const {
        check.real("logits", logits);
        check.count("targets", targets, logits.shape().matrix_rows(), DType::i32);
    }
    void make(const auto& make) {
        make(losses, Shape{logits.shape().matrix_rows()}, computed_in(logits.dtype()));
    }
    OperandList operands() const {
        return {reads("logits", logits), reads("targets", targets),
                makes("losses", losses)};
    }
    /// Maximum, subtract, exp, sum.
    std::int64_t flops() const { return (kTranscendental + 3) * logits.elements(); }
    Derivation derivation() const { return {}; }
    const Tensor& indices() const { return targets; }
    std::int64_t bound() const { return logits.shape().columns(); }
};

/// d_logits = factor * (softmax(logits) - one_hot(targets)).
struct CrossEntropyBackward {
    static constexpr const char* kName = "cross_entropy_backward";
    Tensor d_logits;
    Tensor logits;
    Tensor targets;
    double factor = 1;

    void check(const OperandCheck& check) const {
        check.real("logits", logits);
        check.count("targets", targets, logits.shape().matrix_rows(), DType::i32);
    }
    void make(const auto& make) { make(d_logits, logits.shape(), logits.dtype()); }
    OperandList operands() const {
        return {reads("logits", logits), reads("targets", targets),
                makes("d_logits", d_logits)};
    }
    std::int64_t flops() const {
        return (Softmax::kFlopsOfElement + 1) * logits.elements();
    }
    Derivation derivation() const { return Derivation::loss_gradient(factor); }
    const Tensor& indices() const { return targets; }
    std::int64_t bound() const { return logits.shape().columns(); }
};

// Cross entropy of logits that are a shard of all classes.

/// maximum (rows) of the shard's entries; -infinity if the shard has none.
struct RowMaximum {
    static constexpr const char* kName = "row_maximum";
    Tensor maximum;
    Tensor logits;
    VocabularyShard shard;

    void check(const OperandCheck& check) {
        check.real("logits", logits);
        shard = check.shard(shard, logits.shape().columns());
    }
    void make(const auto& make) {
        make(maximum, Shape{logits.shape().matrix_rows()}, computed_in(logits.dtype()));
    }
    OperandList operands() const {
        return {reads("logits", logits), makes("maximum", maximum)};
    }
    std::int64_t flops() const { return logits.elements(); }
    Derivation derivation() const { return {}; }
    void when_empty(const auto& fill) const {
        fill(maximum, -std::numeric_limits<double>::infinity());
    }
};

/// Checks a shard's logits, and the target and the exchanged maximum of each row.
inline VocabularyShard check_shard_of_logits(const OperandCheck& check,
                                             const Tensor& logits, const Tensor& targets,
                                             const Tensor& maximum,
                                             const VocabularyShard& shard) {
    check.real("logits", logits);
    check.count("targets", targets, logits.shape().matrix_rows(), DType::i32);
    check.count("maximum", maximum, logits.shape().matrix_rows(),
                computed_in(logits.dtype()));
    return check.shard(shard, logits.shape().columns());
}

/// parts (2, rows): the sum over the shard of exp(logit - maximum), and the target's
/// logit if the shard has it, else 0.
struct CrossEntropyParts {
    static constexpr const char* kName = "cross_entropy_parts";
    Tensor parts;
    Tensor logits;
    Tensor targets;
    Tensor maximum;
    VocabularyShard shard;

    void check(const OperandCheck& check) {
        shard = check_shard_of_logits(check, logits, targets, maximum, shard);
    }
    void make(const auto& make) {
        make(parts, Shape{2, logits.shape().matrix_rows()}, computed_in(logits.dtype()));
    }
    OperandList operands() const {
        return {reads("logits", logits), reads("targets", targets),
                reads("maximum", maximum), makes("parts", parts)};
    }
    /// Subtract, exp, sum.
    std::int64_t flops() const { return (kTranscendental + 2) * logits.elements(); }
    Derivation derivation() const { return {}; }
    const Tensor& indices() const { return targets; }
    std::int64_t bound() const { return shard.whole; }
    void when_empty(const auto& fill) const { fill(parts, 0); }
};

/// losses (rows), from the maximum (rows) and the summed parts (2, rows) of all shards.
struct CrossEntropyOfParts {
    static constexpr const char* kName = "cross_entropy_of_parts";
    Tensor losses;
    Tensor maximum;
    Tensor parts;

    void check(const OperandCheck& check) const {
        check.real("maximum", maximum);
        check.dtype("parts", parts, maximum.dtype());
        check.matrix("parts", parts, 2, maximum.elements());
    }
    void make(const auto& make) {
        make(losses, Shape{maximum.elements()}, maximum.dtype());
    }
    OperandList operands() const {
        return {reads("maximum", maximum), reads("parts", parts),
                makes("losses", losses)};
    }
    std::int64_t flops() const { return (kTranscendental + 2) * maximum.elements(); }
    Derivation derivation() const { return {}; }
};

/// d_logits: the shard's columns of factor * (softmax(logits) - one_hot(targets)).
struct CrossEntropyBackwardOfParts {
    static constexpr const char* kName = "cross_entropy_backward_of_parts";
    Tensor d_logits;
    Tensor logits;
    Tensor targets;
    Tensor maximum;
    Tensor parts;
    double factor = 1;
    VocabularyShard shard;

    void check(const OperandCheck& check) {
        shard = check_shard_of_logits(check, logits, targets, maximum, shard);
        check.dtype("parts", parts, computed_in(logits.dtype()));
        check.matrix("parts", parts, 2, logits.shape().matrix_rows());
    }
    void make(const auto& make) { make(d_logits, logits.shape(), logits.dtype()); }
    OperandList operands() const {
        return {reads("logits", logits), reads("targets", targets),
                reads("maximum", maximum), reads("parts", parts),
                makes("d_logits", d_logits)};
    }
    /// Subtract, exp, divide, scale.
    std::int64_t flops() const { return (kTranscendental + 3) * logits.elements(); }
    Derivation derivation() const { return Derivation::loss_gradient(factor); }
    const Tensor& indices() const { return targets; }
    std::int64_t bound() const { return shard.whole; }
};

/// loss (1) = the sum of (prediction - target)^2.
struct SquaredError {
    static constexpr const char* kName = "squared_error";
    Tensor loss;
    Tensor prediction;
    Tensor target;

    void check(const OperandCheck& check) const {
        check.real("prediction", prediction);
        check.like("target", target, "prediction", prediction);
    }
    void make(const auto& make) { make(loss, Shape{1}, computed_in(prediction.dtype())); }
    OperandList operands() const {
        return {reads("prediction", prediction), reads("target", target),
                makes("loss", loss)};
    }
    std::int64_t flops() const { return 3 * prediction.elements(); }
    Derivation derivation() const { return {}; }
    void when_empty(const auto& fill) const { fill(loss, 0); }
};

/// d_prediction = factor * 2 (prediction - target).
struct SquaredErrorBackward {
    static constexpr const char* kName = "squared_error_backward";
    Tensor d_prediction;
    Tensor prediction;
    Tensor target;
    double factor = 1;

    void check(const OperandCheck& check) const {
        check.real("prediction", prediction);
        check.like("target", target, "prediction", prediction);
    }
    void make(const auto& make) {
        make(d_prediction, prediction.shape(), prediction.dtype());
    }
    OperandList operands() const {
        return {reads("prediction", prediction), reads("target", target),
                makes("d_prediction", d_prediction)};
    }
    std::int64_t flops() const { return 2 * prediction.elements(); }
    Derivation derivation() const { return Derivation::loss_gradient(factor); }
};

using LossOperations =
    OperationList<Softmax, SoftmaxBackward, LogSumExp, NormalizeRows,
                  NormalizeRowsBackward, CrossEntropy, CrossEntropyBackward, RowMaximum,
                  CrossEntropyParts, CrossEntropyOfParts, CrossEntropyBackwardOfParts,
                  SquaredError, SquaredErrorBackward>;

}  // namespace lockstep::ops
