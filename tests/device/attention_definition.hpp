#pragma once

#include <algorithm>

#include "tests/device/head_operand.hpp"

// Attention by its definition, in f64, and the error that a device may make.
//
// Errors are counted in the units of Expected: 1 means 4 epsilon. A score is a sum of
// `width` terms, so its error is its size S times sqrt(width). A maximum or a log-sum-exp
// L is subtracted from the score s; L is as large as the scores. Rounding s and L once
// more adds |s| + |L|. An exponential turns the error of its argument into its own
// relative error, so each weight p has the error
//
//     p (sqrt(width) S + |s| + |L| + 1) + least,
//
// where `least` is the smallest normal number; a weight below it may become 0. The error
// of a sum with these weights is the sum of |v| times their errors, plus the sum's own
// rounding. If heads are bf16, a device may round weights to bf16 before multiplying.

namespace lockstep::test {

/// The operands of attention.
struct AttentionOperands {
    AttentionOperands(Bench& bench, const HeadCase& case_of, DType type)
        : test_case(case_of),
          dtype(type),
          q(bench, test_case, test_case.heads, test_case.m, dtype, "q"),
          k(bench, test_case, test_case.few, test_case.n, dtype, "k"),
          v(bench, test_case, test_case.few, test_case.n, dtype, "v") {}

    AttentionHeads heads() const { return {q.view, k.view, v.view}; }

    HeadCase test_case;
    DType dtype;
    HeadOperand q, k, v;
};

/// A key that a query sees.
struct SeenKey {
    std::int64_t key;
    double score;
    double off;  ///< error of the score, which is a sum
};

/// The keys that one head of a query sees.
struct AttentionRow {
    std::vector<SeenKey> keys;
    double maximum = -HUGE_VAL;
    double log_sum_exp = -HUGE_VAL;
};

/// A sum of values with inexact weights.
struct WeightedSum {
    Sum sum;
    double off = 0;

    void add(double weight, double weight_off, double value) {
        sum.add(weight * value);
        off += weight_off * std::abs(value);
    }
    double size() const {
        const double roundings = std::sqrt(static_cast<double>(sum.count));
        return off + roundings * (std::sqrt(sum.squares) + 2 * std::abs(sum.value));
    }
    void expect(Expected& expected) const { expected.add(sum.value, size()); }
};

/// Returns the relative error of a factor in a bf16 product, in units of Expected.
inline double rounding_off(DType dtype) {
    return dtype == DType::bf16 ? Bf16::kEpsilon / 2 / (4 * epsilon_of(dtype)) : 0;
}

/// Returns the number `least`, in units of Expected.
inline double least_off(DType dtype) {
    return least_of(dtype) / (2 * epsilon_of(dtype));
}

class AttentionDefinition {
  public:
    AttentionDefinition(const AttentionOperands& operands,
                        const AttentionOptions& options)
        : operands_(operands), test_case_(operands.test_case), options_(options) {
        for (std::int64_t b = 0; b < test_case_.batches; ++b)
            for (std::int64_t h = 0; h < test_case_.heads; ++h)
                for (std::int64_t i = 0; i < test_case_.m; ++i)
                    rows_.push_back(make_row(b, h, i));
    }

    bool sees(std::int64_t query, std::int64_t key) const {
        return !options_.causal || options_.keys[key] <= options_.queries[query];
    }

    const AttentionRow& row(std::int64_t batch, std::int64_t head,
                            std::int64_t query) const {
        return rows_[static_cast<std::size_t>(
            (batch * test_case_.heads + head) * test_case_.m + query)];
    }

    /// (m, batches, heads width).
    Expected y() const {
        Expected expected(
            {test_case_.m, test_case_.batches, test_case_.heads * test_case_.width},
            computed_in(operands_.dtype));
        for (std::int64_t i = 0; i < test_case_.m; ++i)
            for (std::int64_t b = 0; b < test_case_.batches; ++b)
                for (std::int64_t h = 0; h < test_case_.heads; ++h)
                    for (std::int64_t d = 0; d < test_case_.width; ++d)
                        mean_value(b, h, i, d).expect(expected);
        return expected;
    }

    /// The mean of the values that query i sees. The weights are divided by their sum.
    /// This sum has the same relative error as the weights.
    WeightedSum mean_value(std::int64_t b, std::int64_t h, std::int64_t i,
                           std::int64_t d) const {
        const AttentionRow& from = row(b, h, i);
        const double mean = mean_off(from) + rounding_off(operands_.dtype);
        WeightedSum result;
        for (const SeenKey& seen : from.keys) {
            const double p = std::exp(seen.score - from.log_sum_exp);
            result.add(
                p, p * (off_from(seen, from.maximum) + mean) + least_off(operands_.dtype),
                operands_.v.at(b, test_case_.serving(h), seen.key, d));
        }
        return result;
    }

    /// The log-sum-exps, (batches, heads, m): logarithms of sums with a relative error.
    Expected log_sum_exp() const {
        Expected expected({test_case_.batches, test_case_.heads, test_case_.m},
                          computed_in(operands_.dtype));
        for (const AttentionRow& of_row : rows_) {
            const double terms = std::sqrt(static_cast<double>(of_row.keys.size()));
            if (of_row.keys.empty())
                expected.add(-HUGE_VAL, 0);
            else
                expected.add(of_row.log_sum_exp,
                             mean_off(of_row) + terms + std::abs(of_row.log_sum_exp));
        }
        return expected;
    }

    /// Returns the relative error of exp(score - what).
    static double off_from(const SeenKey& seen, double what) {
        return seen.off + std::abs(seen.score) + std::abs(what) + 1;
    }

  private:
    AttentionRow make_row(std::int64_t b, std::int64_t h, std::int64_t i) const {
        AttentionRow row;
        for (std::int64_t j = 0; j < test_case_.n; ++j) {
            if (!sees(i, j)) continue;
            Sum sum;
            for (std::int64_t d = 0; d < test_case_.width; ++d)
                sum.add(operands_.q.at(b, h, i, d) *
                        operands_.k.at(b, test_case_.serving(h), j, d));
            const double size = std::sqrt(sum.squares) + std::abs(sum.value);
            row.keys.push_back({j, options_.factor * sum.value,
                                std::abs(options_.factor) * size *
                                    std::sqrt(static_cast<double>(test_case_.width))});
            row.maximum = std::max(row.maximum, row.keys.back().score);
        }
        double sum = 0;
        for (const SeenKey& seen : row.keys)
            sum += std::exp(seen.score - row.maximum);
        row.log_sum_exp = row.maximum + std::log(sum);
        return row;
    }

    /// Returns the relative error of the sum of a row's exponentials.
    static double mean_off(const AttentionRow& of_row) {
        double mean = 0;
        for (const SeenKey& seen : of_row.keys)
            mean += std::exp(seen.score - of_row.log_sum_exp) *
                    off_from(seen, of_row.maximum);
        return mean;
    }

    const AttentionOperands& operands_;
    HeadCase test_case_;
    AttentionOptions options_;
    std::vector<AttentionRow> rows_;
};

}  // namespace lockstep::test
