// Computes a layer of experts without any routing, in plain loops in f64: every expert
// sees every token, with masks. The derivatives are written by hand. No code is shared
// with the layer.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "src/core/host_tensor.hpp"
#include "src/nn/mixture_of_experts.hpp"

namespace lockstep::nn_test {

class DenseExperts {
  public:
    using Row = std::vector<double>;
    using Matrix = std::vector<Row>;

    struct Results {
        HostTensor y, dx;
        std::map<std::string, HostTensor> gradients;
        double loss = 0;  ///< the gate's own loss terms
    };

    DenseExperts(const MixtureOfExperts::Sizes& sizes,
                 std::map<std::string, HostTensor> values, const Row& bias = {})
        : sizes_(sizes), values_(std::move(values)), bias_(bias) {}

    Results run(const HostTensor& x, const HostTensor& dy, double weight) {
        const std::int64_t n = x.shape().matrix_rows(), e = sizes_.experts.count;
        const ExpertSizes& experts = sizes_.experts;
        const GateOptions& gate = experts.gate;
        Results results{
            HostTensor(x.shape(), DType::f64), HostTensor(x.shape(), DType::f64), {}, 0};
        for (const auto& [name, value] : values_)
            results.gradients[name] = HostTensor(value.shape(), DType::f64);

        const Matrix logits = logits_of(x);
        // First: which experts are chosen, and which copies are dropped.
        std::vector<std::vector<std::int64_t>> chosen(at(n));
        Row copies(at(e));
        for (std::int64_t t = 0; t < n; ++t) {
            chosen[at(t)] = choose(logits[at(t)]);
            for (const std::int64_t i : chosen[at(t)])
                ++copies[at(i)];
        }
        std::vector<std::vector<bool>> kept(at(n),
                                            std::vector<bool>(at(gate.chosen), true));
        if (experts.capacity > 0) drop(chosen, kept);

        Matrix d_logits(at(n), Row(at(e)));
        for (std::int64_t t = 0; t < n; ++t) {
            const std::vector<std::int64_t>& own = chosen[at(t)];
            Row d_weights(own.size());
            const Row weights = weights_of(logits[at(t)], own);
            for (std::size_t j = 0; j < own.size(); ++j) {
                if (!kept[at(t)][j]) continue;
                d_weights[j] = through(own[j], t, weights[j], x, dy, results);
            }
            for (std::int64_t i = 0; i < e; ++i)
                for (std::size_t j = 0; j < own.size(); ++j)
                    d_logits[at(t)][at(i)] +=
                        d_weights[j] * slope(logits[at(t)], own, weights, j, i);
        }
        add_losses(logits, copies, weight, d_logits, results);
        through_gate(x, d_logits, results);
        return results;
    }

  private:
    static std::size_t at(std::int64_t i) { return static_cast<std::size_t>(i); }

    Matrix logits_of(const HostTensor& x) const {
        const std::int64_t n = x.shape().matrix_rows(), e = sizes_.experts.count,
                           h = sizes_.hidden;
        Matrix logits(at(n), Row(at(e)));
        for (std::int64_t t = 0; t < n; ++t)
            for (std::int64_t i = 0; i < e; ++i)
                for (std::int64_t c = 0; c < h; ++c)
                    logits[at(t)][at(i)] += x.at(t * h + c) * value("gate.weight", i, c);
        return logits;
    }
    void through_gate(const HostTensor& x, const Matrix& d_logits,
                      Results& results) const {
        const std::int64_t n = x.shape().matrix_rows(), e = sizes_.experts.count,
                           h = sizes_.hidden;
        for (std::int64_t t = 0; t < n; ++t)
            for (std::int64_t i = 0; i < e; ++i)
                for (std::int64_t c = 0; c < h; ++c) {
                    const double d = d_logits[at(t)][at(i)];
                    add(results.gradients["gate.weight"], i, c, d * x.at(t * h + c));
                    add(results.dx, t, c, d * value("gate.weight", i, c));
                }
    }
    static void add(HostTensor& to, std::int64_t row, std::int64_t column, double value) {
        const std::int64_t place = row * to.shape().columns() + column;
        to.set(place, to.at(place) + value);
    }
    double value(const std::string& name, std::int64_t row, std::int64_t column) const {
        const HostTensor& tensor = values_.at(name);
        return tensor.at(row * tensor.shape().columns() + column);
    }

    bool is_sigmoid() const { return sizes_.experts.gate.form == GateForm::sigmoid; }
    static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
    static Row softmax(const Row& x) {
        const double most = *std::max_element(x.begin(), x.end());
        Row y;
        double sum = 0;
        for (const double a : x) {
            y.push_back(std::exp(a - most));
            sum += y.back();
        }
        for (double& a : y)
            a /= sum;
        return y;
    }
    Row scores_of(const Row& logits) const {
        if (!is_sigmoid()) return softmax(logits);
        Row scores;
        for (const double logit : logits)
            scores.push_back(sigmoid(logit));
        return scores;
    }

    std::vector<std::int64_t> choose(const Row& logits) const {
        const GateOptions& gate = sizes_.experts.gate;
        Row biased =
            gate.form == GateForm::top_k_then_softmax ? logits : scores_of(logits);
        for (std::size_t i = 0; i < bias_.size(); ++i)
            biased[i] += bias_[i];
        const auto width = static_cast<std::int64_t>(biased.size()) / gate.groups;
        std::vector<std::pair<double, std::int64_t>> groups;
        for (std::int64_t g = 0; g < gate.groups; ++g) {
            Row own(biased.begin() + g * width, biased.begin() + (g + 1) * width);
            std::sort(own.rbegin(), own.rend());
            double sum = 0;
            for (std::int64_t i = 0; i < gate.chosen / gate.chosen_groups; ++i)
                sum += own[at(std::min(i, width - 1))];
            groups.emplace_back(-sum, g);
        }
        std::sort(groups.begin(), groups.end());
        std::vector<std::pair<double, std::int64_t>> order;
        for (std::int64_t i = 0; i < static_cast<std::int64_t>(biased.size()); ++i)
            for (std::int64_t g = 0; g < gate.chosen_groups; ++g)
                if (groups[at(g)].second == i / width)
                    order.emplace_back(-biased[at(i)], i);
        std::sort(order.begin(), order.end());
        std::vector<std::int64_t> chosen;
        for (std::int64_t j = 0; j < gate.chosen; ++j)
            chosen.push_back(order[at(j)].second);
        return chosen;
    }

    void drop(const std::vector<std::vector<std::int64_t>>& chosen,
              std::vector<std::vector<bool>>& kept) const {
        const auto n = static_cast<std::int64_t>(chosen.size());
        const std::int64_t k = sizes_.experts.gate.chosen;
        const double capacity =
            std::ceil(sizes_.experts.capacity * static_cast<double>(n * k) /
                      static_cast<double>(sizes_.experts.count));
        Row taken(at(sizes_.experts.count));
        const auto visit = [&](std::int64_t t, std::int64_t j) {
            double& own = taken[at(chosen[at(t)][at(j)])];
            kept[at(t)][at(j)] = own < capacity;
            ++own;
        };
        if (sizes_.experts.order == CopyOrder::tokens)
            for (std::int64_t t = 0; t < n; ++t)
                for (std::int64_t j = 0; j < k; ++j)
                    visit(t, j);
        else
            for (std::int64_t j = 0; j < k; ++j)
                for (std::int64_t t = 0; t < n; ++t)
                    visit(t, j);
    }

    /// Returns whether the weights are normalized: they add up to the gate's factor.
    bool sums_up() const {
        return sizes_.experts.gate.form == GateForm::top_k_then_softmax ||
               sizes_.experts.gate.normalized;
    }
    Row weights_of(const Row& logits, const std::vector<std::int64_t>& chosen) const {
        const Row scores = scores_of(logits);
        Row weights;
        double sum = 0;
        for (const std::int64_t i : chosen)
            sum += scores[at(i)];
        for (const std::int64_t i : chosen)
            weights.push_back(sizes_.experts.gate.factor * scores[at(i)] /
                              (sums_up() ? sum : 1));
        return weights;
    }
    /// Returns the derivative of weight j with respect to logit i.
    double slope(const Row& logits, const std::vector<std::int64_t>& chosen,
                 const Row& weights, std::size_t j, std::int64_t i) const {
        const double factor = sizes_.experts.gate.factor;
        const Row scores = scores_of(logits);
        const bool same = chosen[j] == i;
        const auto place = std::find(chosen.begin(), chosen.end(), i);
        if (!is_sigmoid() && !sums_up())
            return weights[j] * ((same ? 1 : 0) - scores[at(i)]);
        if (place == chosen.end()) return 0;
        const double other = weights[at(place - chosen.begin())] / factor;
        if (!is_sigmoid()) return weights[j] * ((same ? 1 : 0) - other);
        const double own_slope = 1 - scores[at(i)];  // slope of log sigmoid
        if (!sums_up()) return same ? weights[j] * own_slope : 0;
        return weights[j] * ((same ? 1 : 0) - other) * own_slope;
    }

    /// Adds expert i's result for token t, times w; returns the gradient of w.
    double through(std::int64_t i, std::int64_t t, double w, const HostTensor& x,
                   const HostTensor& dy, Results& results) const {
        const std::int64_t h = sizes_.hidden, inner = sizes_.experts.inner;
        const std::int64_t layers = sizes_.gated ? 2 : 1;
        const std::string wide =
            sizes_.gated ? "experts.gate_up_proj.weight" : "experts.c_fc.weight";
        const std::string narrow =
            sizes_.gated ? "experts.down_proj.weight" : "experts.c_proj.weight";
        Row made(at(layers * inner));
        for (std::int64_t c = 0; c < layers * inner; ++c)
            for (std::int64_t j = 0; j < h; ++j)
                made[at(c)] += value(wide, i * layers * inner + c, j) * x.at(t * h + j);
        double along = 0;
        Row d_made(made.size());
        for (std::int64_t c = 0; c < inner; ++c) {
            const double g = made[at(c)];
            const double up = sizes_.gated ? made[at(inner + c)] : 1;
            const double s = sigmoid(g);
            const double phi = 0.5 * std::erfc(-g / std::sqrt(2.0));
            const double f = sizes_.gated ? g * s : g * phi;
            const double slope = sizes_.gated ? s * (1 + g * (1 - s))
                                              : phi + g * std::exp(-g * g / 2) /
                                                          std::sqrt(2 * std::acos(-1.0));
            double d_act = 0;
            for (std::int64_t j = 0; j < h; ++j) {
                const double v = value(narrow, i * h + j, c);
                const double d = dy.at(t * h + j);
                add(results.y, t, j, w * v * f * up);
                along += d * v * f * up;
                d_act += w * d * v;
                add(results.gradients[narrow], i * h + j, c, w * d * f * up);
            }
            d_made[at(c)] = d_act * up * slope;
            if (sizes_.gated) d_made[at(inner + c)] = d_act * f;
        }
        for (std::int64_t c = 0; c < layers * inner; ++c)
            for (std::int64_t j = 0; j < h; ++j) {
                const std::int64_t row = i * layers * inner + c;
                add(results.gradients[wide], row, j, d_made[at(c)] * x.at(t * h + j));
                add(results.dx, t, j, d_made[at(c)] * value(wide, row, j));
            }
        return along;
    }

    void add_losses(const Matrix& logits, const Row& copies, double weight,
                    Matrix& d_logits, Results& results) const {
        const GateOptions& gate = sizes_.experts.gate;
        const auto n = static_cast<double>(logits.size());
        const auto e = copies.size();
        double all = 0;
        for (const double count : copies)
            all += count;
        for (std::size_t t = 0; t < logits.size(); ++t) {
            Row p = scores_of(logits[t]);
            double sum = 0;
            for (const double score : p)
                sum += score;
            double mean = 0;
            for (std::size_t i = 0; i < e; ++i) {
                p[i] /= is_sigmoid() ? sum : 1;
                mean += copies[i] / all * p[i];
            }
            const double a = weight * gate.balance * static_cast<double>(e) / n;
            results.loss += a * mean;
            for (std::size_t i = 0; i < e; ++i) {
                const double derivative =
                    is_sigmoid() ? p[i] * (1 - sigmoid(logits[t][i])) : p[i];
                d_logits[t][i] += a * derivative * (copies[i] / all - mean);
            }
            double exponentials = 0;
            for (const double logit : logits[t])
                exponentials += std::exp(logit);
            const double z = std::log(exponentials), b = weight * gate.z / n;
            results.loss += b * z * z;
            const Row share = softmax(logits[t]);
            for (std::size_t i = 0; i < e; ++i)
                d_logits[t][i] += 2 * b * z * share[i];
        }
    }

    MixtureOfExperts::Sizes sizes_;
    std::map<std::string, HostTensor> values_;
    Row bias_;
};

}  // namespace lockstep::nn_test
