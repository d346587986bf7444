#include "lessons/assignments/ring_attention/grading/whole_attention.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

namespace lockstep::lessons::ring_attention {

double make_weights(std::vector<double>& scores) {
    double maximum = kUnseen, sum = 0;
    for (const double score : scores)
        maximum = std::max(maximum, score);
    for (double& score : scores) {
        score = score == kUnseen ? 0 : std::exp(score - maximum);
        sum += score;
    }
    for (double& score : scores)
        score = sum > 0 ? score / sum : 0;
    return maximum + std::log(sum);
}

std::string SharedSequence::name() const {
    return fmt::format("{} rank{}, {} tokens{}", ranks, ranks == 1 ? "" : "s", tokens,
                       causal ? ", causal" : "");
}

int SharedSequence::owner(std::int64_t token) const {
    int rank = 0;
    while (token >= own(rank).begin + own(rank).count)
        ++rank;
    return rank;
}

std::int64_t SharedSequence::bytes(int rank) const {
    return own(rank).count * batch * heads * width * bytes_of(DType::f64);
}

double WholeAttention::factor() const {
    const std::int64_t width = queries.shape()[2] / heads;
    return 1 / std::sqrt(static_cast<double>(width));
}

View right_view(const WholeAttention& of) {
    const std::int64_t tokens = of.queries.shape()[0];
    return {[tokens, causal = of.causal](std::int64_t query) {
                std::vector<std::int64_t> keys(
                    static_cast<std::size_t>(causal ? query + 1 : tokens));
                std::iota(keys.begin(), keys.end(), 0);
                return keys;
            },
            of.factor()};
}

namespace {

/// One head of one sequence.
class Head {
  public:
    Head(const WholeAttention& of, std::int64_t number)
        : of_(of),
          tokens_(of.queries.shape()[0]),
          pitch_(of.queries.shape()[1] * of.queries.shape()[2]),
          width_(of.queries.shape()[2] / of.heads),
          number_(number) {}

    void attend(std::int64_t query, const View& view, WholeResult& out) const {
        const std::vector<std::int64_t> keys = view.seen(query);
        if (keys.empty()) return;
        std::vector<double> p;
        p.reserve(keys.size());
        for (const std::int64_t key : keys)
            p.push_back(score(query, key, view));
        const double maximum = *std::ranges::max_element(p);
        const double log_sum_exp = make_weights(p);
        out.log_sum_exp.set(row(query), log_sum_exp);
        const double scale = view.finished ? 1 : std::exp(log_sum_exp - maximum);
        for (std::size_t k = 0; k < keys.size(); ++k)
            add(out.y, at(query), scale * p[k], of_.values, at(keys[k]));
    }

    void lead_back(std::int64_t query, const View& view, const WholeResult& right,
                   WholeGradients& out) const {
        const std::int64_t i = at(query);
        const double dy_y = product(of_.dy, i, right.y, i);
        for (const std::int64_t key : view.seen(query)) {
            const std::int64_t j = at(key);
            const double p =
                std::exp(score(query, key, view) - right.log_sum_exp.at(row(query)));
            const double ds =
                view.factor * p * (product(of_.dy, i, of_.values, j) - dy_y);
            add(out.dq, i, ds, of_.keys, j);
            add(out.dk, j, ds, of_.queries, i);
            add(out.dv, j, p, of_.dy, i);
        }
    }

  private:
    /// Returns the index at which the head's columns of a token begin.
    std::int64_t at(std::int64_t token) const {
        return token * pitch_ + number_ * width_;
    }
    std::int64_t row(std::int64_t query) const { return number_ * tokens_ + query; }

    double score(std::int64_t query, std::int64_t key, const View& view) const {
        return view.factor * product(of_.queries, at(query), of_.keys, at(key));
    }

    double product(const HostTensor& x, std::int64_t i, const HostTensor& y,
                   std::int64_t j) const {
        double sum = 0;
        for (std::int64_t c = 0; c < width_; ++c)
            sum += x.at(i + c) * y.at(j + c);
        return sum;
    }

    void add(HostTensor& sum, std::int64_t i, double factor, const HostTensor& x,
             std::int64_t j) const {
        for (std::int64_t c = 0; c < width_; ++c)
            sum.set(i + c, sum.at(i + c) + factor * x.at(j + c));
    }

    const WholeAttention& of_;
    std::int64_t tokens_, pitch_, width_, number_;
};

/// Calls visit(head, query) for all of them.
template <typename Visit>
void each_query(const WholeAttention& of, Visit&& visit) {
    const Shape& shape = of.queries.shape();
    for (std::int64_t number = 0; number < shape[1] * of.heads; ++number)
        for (std::int64_t query = 0; query < shape[0]; ++query)
            visit(Head(of, number), query);
}

}  // namespace

WholeResult attention_of(const WholeAttention& of, const View& view) {
    const Shape& shape = of.queries.shape();
    WholeResult out{HostTensor(shape, DType::f64),
                    HostTensor({shape[1], of.heads, shape[0]}, DType::f64)};
    each_query(
        of, [&](const Head& head, std::int64_t query) { head.attend(query, view, out); });
    return out;
}

WholeGradients gradients_of(const WholeAttention& of, const WholeResult& right,
                            const View& view) {
    const HostTensor zeros(of.queries.shape(), DType::f64);
    WholeGradients out{zeros, zeros, zeros};
    each_query(of, [&](const Head& head, std::int64_t query) {
        head.lead_back(query, view, right, out);
    });
    return out;
}

}  // namespace lockstep::lessons::ring_attention
