#pragma once

#include "tests/device/attention_cases.hpp"
#include "tests/device/attention_definition.hpp"

namespace lockstep::test {

/// The inputs of attention's backward, on the host and on the device, and gradients whose
/// first values are not zero.
struct BackwardOperands {
    BackwardOperands(Bench& bench, const AttentionOperands& operands,
                     const AttentionDefinition& definition)
        : dq(bench, operands.test_case, operands.test_case.heads, operands.test_case.m,
             operands.dtype, "dq"),
          dk(bench, operands.test_case, operands.test_case.few, operands.test_case.n,
             operands.dtype, "dk"),
          dv(bench, operands.test_case, operands.test_case.few, operands.test_case.n,
             operands.dtype, "dv"),
          dy(bench, unpadded(operands.test_case), operands.test_case.heads,
             operands.test_case.m, operands.dtype, "dy"),
          log_sum_exp({operands.test_case.batches, operands.test_case.heads,
                       operands.test_case.m},
                      computed_in(operands.dtype)),
          dy_y(log_sum_exp) {
        const HeadCase& test_case = operands.test_case;
        std::int64_t next = 0;
        for (std::int64_t b = 0; b < test_case.batches; ++b)
            for (std::int64_t h = 0; h < test_case.heads; ++h)
                for (std::int64_t i = 0; i < test_case.m; ++i, ++next) {
                    double along = 0;
                    for (std::int64_t d = 0; d < test_case.width; ++d)
                        along += dy.at(b, h, i, d) *
                                 definition.mean_value(b, h, i, d).sum.value;
                    log_sum_exp.set(next, definition.row(b, h, i).log_sum_exp);
                    dy_y.set(next, along);
                }
        backward = {dy.view.tensor, bench->upload(log_sum_exp), bench->upload(dy_y)};
    }

    static HeadCase unpadded(HeadCase test_case) {
        test_case.before = test_case.behind = 0;
        return test_case;
    }
    AttentionHeads gradients() const { return {dq.view, dk.view, dv.view}; }
    void run(Bench& bench, const AttentionOperands& operands,
             const AttentionOptions& options, const std::vector<KeyBlock>& blocks) const {
        for (const KeyBlock& block : blocks)
            bench->attend_backward(with_keys(gradients(), block),
                                   with_keys(operands.heads(), block), backward,
                                   with_keys(options, block));
    }
    /// Sets the gradients to their first values, for the next run.
    void restore(Bench& bench) const {
        for (const HeadOperand* gradient : {&dq, &dk, &dv})
            bench->upload_into(gradient->view.tensor, gradient->values);
    }

    HeadOperand dq, dk, dv, dy;
    HostTensor log_sum_exp, dy_y;
    AttentionBackward backward;
};

/// The three sums that attend_backward adds, by its definition. The log-sum-exp and the
/// products of dy and y are given.
class BackwardDefinition {
  public:
    BackwardDefinition(const AttentionOperands& operands,
                       const BackwardOperands& backward,
                       const AttentionDefinition& definition, double factor)
        : operands_(operands), backward_(backward), factor_(factor) {
        const HeadCase& test_case = operands.test_case;
        std::vector<WeightedSum> dq(sums(backward.dq)), dk(sums(backward.dk)),
            dv(sums(backward.dv));
        for (std::int64_t b = 0; b < test_case.batches; ++b)
            for (std::int64_t h = 0; h < test_case.heads; ++h)
                for (std::int64_t i = 0; i < test_case.m; ++i)
                    for (const SeenKey& seen : definition.row(b, h, i).keys)
                        add_pair(dq, dk, dv, b, h, i, seen);
        finish(dq_, backward.dq, dq);
        finish(dk_, backward.dk, dk);
        finish(dv_, backward.dv, dv);
    }

    void check(Bench& bench) const {
        dq_.check(bench->download(backward_.dq.view.tensor));
        dk_.check(bench->download(backward_.dk.view.tensor));
        dv_.check(bench->download(backward_.dv.view.tensor));
    }

  private:
    using Sums = std::vector<WeightedSum>;

    static Sums sums(const HeadOperand& gradient) {
        return Sums(static_cast<std::size_t>(gradient.values.elements()));
    }

    /// attention_definition.hpp explains the error of a weight. The product of dy and v
    /// is a sum of `width` terms. ds is a product, so the errors of its factors add up.
    void add_pair(Sums& dq, Sums& dk, Sums& dv, std::int64_t b, std::int64_t h,
                  std::int64_t i, const SeenKey& seen) const {
        const HeadCase& test_case = operands_.test_case;
        const std::int64_t j = seen.key, few = test_case.serving(h);
        const std::int64_t index = (b * test_case.heads + h) * test_case.m + i;
        const double whole = backward_.log_sum_exp.at(index);
        const double along = backward_.dy_y.at(index);
        const double p = std::exp(seen.score - whole);
        const double p_off =
            p * AttentionDefinition::off_from(seen, whole) + least_off(operands_.dtype);
        const double rounding = rounding_off(operands_.dtype);
        Sum dp;
        for (std::int64_t d = 0; d < test_case.width; ++d)
            dp.add(backward_.dy.at(b, h, i, d) * operands_.v.at(b, few, j, d));
        const double dp_off = std::sqrt(static_cast<double>(test_case.width)) *
                                  (std::sqrt(dp.squares) + std::abs(dp.value)) +
                              std::abs(along);
        const double ds = factor_ * p * (dp.value - along);
        const double ds_off =
            std::abs(factor_) * (p * dp_off + p_off * std::abs(dp.value - along)) +
            std::abs(ds);
        const double ds_used = ds_off + rounding * std::abs(ds);
        const double p_used = p_off + rounding * p;
        for (std::int64_t d = 0; d < test_case.width; ++d) {
            at(dq, backward_.dq, b, h, i, d)
                .add(ds, ds_used, operands_.k.at(b, few, j, d));
            at(dk, backward_.dk, b, few, j, d)
                .add(ds, ds_used, operands_.q.at(b, h, i, d));
            at(dv, backward_.dv, b, few, j, d)
                .add(p, p_used, backward_.dy.at(b, h, i, d));
        }
    }

    static WeightedSum& at(Sums& terms, const HeadOperand& gradient, std::int64_t batch,
                           std::int64_t head, std::int64_t row, std::int64_t column) {
        return terms[static_cast<std::size_t>(gradient.place(batch, head, row, column))];
    }

    /// Adds the first values. Columns outside the heads stay as they are.
    static void finish(Expected& expected, const HeadOperand& gradient, Sums& added) {
        for (std::int64_t i = 0; i < gradient.values.elements(); ++i) {
            WeightedSum& sum = added[static_cast<std::size_t>(i)];
            const bool alone = sum.sum.count == 0;
            sum.add(1, 0, gradient.values.at(i));
            if (alone)
                expected.add(gradient.values.at(i), 0);
            else
                sum.expect(expected);
        }
    }

    const AttentionOperands& operands_;
    const BackwardOperands& backward_;
    double factor_;
    Expected dq_{backward_.dq.values.shape(), operands_.dtype};
    Expected dk_{backward_.dk.values.shape(), operands_.dtype};
    Expected dv_{backward_.dv.values.shape(), operands_.dtype};
};

}  // namespace lockstep::test
