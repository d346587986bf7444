#pragma once

#include <algorithm>

#include "tests/device/head_operand.hpp"

// Attention by its definition, in f64, and how far a device may be off.
//
// Errors are counted in what Expected takes: 1 stands for 4 epsilon. A score, a sum of
// `width` terms, is off by its size S times sqrt(width). What is taken off it, a maximum
// or a log-sum-exp L, is as large as the scores are, and either is rounded once more: |s|
// + |L|. An exponential turns what its argument is off into a relative error of itself,
// so each weight p is off by
//
//     p (sqrt(width) S + |s| + |L| + 1) + least,
//
// where `least`, the smallest number with all its digits, may be lost altogether. Sums
// with these weights are off by the sum of |v| times that, and by their own rounding.
// If heads are bf16, a device may round weights to bf16 before it multiplies with
// them.

namespace lockstep::test {

/// What attention works on.
struct AttentionOperands {
    AttentionOperands(Bench& bench, const HeadCase& case_of, DType type)
        : of(case_of),
          dtype(type),
          q(bench, of, of.heads, of.m, dtype, "q"),
          k(bench, of, of.few, of.n, dtype, "k"),
          v(bench, of, of.few, of.n, dtype, "v") {}

    AttentionHeads heads() const { return {q.view, k.view, v.view}; }

    HeadCase of;
    DType dtype;
    HeadOperand q, k, v;
};

/// A key that a query sees.
struct SeenKey {
    std::int64_t key;
    double score;
    double off;  ///< of the score as a sum
};

/// What one query's head sees.
struct AttentionRow {
    std::vector<SeenKey> keys;
    double maximum = -HUGE_VAL;
    double log_sum_exp = -HUGE_VAL;
};

/// A sum of values with weights that are off.
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

/// How far a factor of bf16's products may be off, relative to itself, as an error.
inline double rounding_off(DType dtype) {
    return dtype == DType::bf16 ? Bf16::kEpsilon / 2 / (4 * epsilon_of(dtype)) : 0;
}

/// The number `least`, as an error.
inline double least_off(DType dtype) {
    return least_of(dtype) / (2 * epsilon_of(dtype));
}

class AttentionDefinition {
  public:
    AttentionDefinition(const AttentionOperands& operands,
                        const AttentionOptions& options)
        : operands_(operands), of_(operands.of), options_(options) {
        for (std::int64_t b = 0; b < of_.batches; ++b)
            for (std::int64_t h = 0; h < of_.heads; ++h)
                for (std::int64_t i = 0; i < of_.m; ++i)
                    rows_.push_back(make_row(b, h, i));
    }

    bool sees(std::int64_t query, std::int64_t key) const {
        return !options_.causal || options_.keys[key] <= options_.queries[query];
    }

    const AttentionRow& row(std::int64_t batch, std::int64_t head,
                            std::int64_t query) const {
        return rows_[static_cast<std::size_t>((batch * of_.heads + head) * of_.m +
                                              query)];
    }

    /// (m, batches, heads width).
    Expected y() const {
        Expected expected({of_.m, of_.batches, of_.heads * of_.width},
                          computed_in(operands_.dtype));
        for (std::int64_t i = 0; i < of_.m; ++i)
            for (std::int64_t b = 0; b < of_.batches; ++b)
                for (std::int64_t h = 0; h < of_.heads; ++h)
                    for (std::int64_t d = 0; d < of_.width; ++d)
                        mean_value(b, h, i, d).expect(expected);
        return expected;
    }

    /// The values' mean as query i sees them. Its weights are divided by their sum, which
    /// is as far off as the weights are.
    WeightedSum mean_value(std::int64_t b, std::int64_t h, std::int64_t i,
                           std::int64_t d) const {
        const AttentionRow& from = row(b, h, i);
        const double mean = mean_off(from) + rounding_off(operands_.dtype);
        WeightedSum result;
        for (const SeenKey& seen : from.keys) {
            const double p = std::exp(seen.score - from.log_sum_exp);
            result.add(
                p, p * (off_from(seen, from.maximum) + mean) + least_off(operands_.dtype),
                operands_.v.at(b, of_.serving(h), seen.key, d));
        }
        return result;
    }

    /// (batches, heads, m). The logarithm of a sum that is off in proportion.
    Expected log_sum_exp() const {
        Expected expected({of_.batches, of_.heads, of_.m}, computed_in(operands_.dtype));
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

    /// How far exp(score - what) is off, relative to itself.
    static double off_from(const SeenKey& seen, double what) {
        return seen.off + std::abs(seen.score) + std::abs(what) + 1;
    }

  private:
    AttentionRow make_row(std::int64_t b, std::int64_t h, std::int64_t i) const {
        AttentionRow row;
        for (std::int64_t j = 0; j < of_.n; ++j) {
            if (!sees(i, j)) continue;
            Sum sum;
            for (std::int64_t d = 0; d < of_.width; ++d)
                sum.add(operands_.q.at(b, h, i, d) *
                        operands_.k.at(b, of_.serving(h), j, d));
            const double size = std::sqrt(sum.squares) + std::abs(sum.value);
            row.keys.push_back({j, options_.factor * sum.value,
                                std::abs(options_.factor) * size *
                                    std::sqrt(static_cast<double>(of_.width))});
            row.maximum = std::max(row.maximum, row.keys.back().score);
        }
        double sum = 0;
        for (const SeenKey& seen : row.keys)
            sum += std::exp(seen.score - row.maximum);
        row.log_sum_exp = row.maximum + std::log(sum);
        return row;
    }

    /// How far the sum of a row's exponentials is off, relative to itself.
    static double mean_off(const AttentionRow& of_row) {
        double mean = 0;
        for (const SeenKey& seen : of_row.keys)
            mean += std::exp(seen.score - of_row.log_sum_exp) *
                    off_from(seen, of_row.maximum);
        return mean;
    }

    const AttentionOperands& operands_;
    HeadCase of_;
    AttentionOptions options_;
    std::vector<AttentionRow> rows_;
};

}  // namespace lockstep::test
