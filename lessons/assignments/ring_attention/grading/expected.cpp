#include "lessons/assignments/ring_attention/grading/expected.hpp"

#include <algorithm>
#include <cmath>
#include <limits>

namespace lockstep::lessons {

namespace {

/// One head of one sequence.
class Head {
  public:
    Head(const WholeAttention& of, std::int64_t number, ExpectedAttention& out)
        : of_(of),
          out_(out),
          tokens_(of.queries.shape()[0]),
          pitch_(of.queries.shape()[1] * of.queries.shape()[2]),
          width_(of.queries.shape()[2] / of.heads),
          number_(number) {}

    void attend(std::int64_t query) {
        const double factor = 1 / std::sqrt(static_cast<double>(width_));
        const std::int64_t i = at(query), seen = of_.causal ? query + 1 : tokens_;
        std::vector<double> p(static_cast<std::size_t>(seen));
        for (std::int64_t key = 0; key < seen; ++key)
            p[key] = factor * product(of_.queries, i, of_.keys, at(key));
        out_.log_sum_exp.set(number_ * tokens_ + query, make_weights(p));
        for (std::int64_t key = 0; key < seen; ++key)
            add(out_.y, i, p[key], of_.values, at(key));
        const double dy_y = product(of_.dy, i, out_.y, i);
        for (std::int64_t key = 0; key < seen; ++key) {
            const std::int64_t j = at(key);
            const double weight = p[key];
            const double ds =
                factor * weight * (product(of_.dy, i, of_.values, j) - dy_y);
            add(out_.dq, i, ds, of_.keys, j);
            add(out_.dk, j, ds, of_.queries, i);
            add(out_.dv, j, weight, of_.dy, i);
        }
    }

  private:
    /// Where the head's columns of a token begin.
    std::int64_t at(std::int64_t token) const {
        return token * pitch_ + number_ * width_;
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
            add_to(sum, i + c, factor * x.at(j + c));
    }

    const WholeAttention& of_;
    ExpectedAttention& out_;
    std::int64_t tokens_, pitch_, width_, number_;
};

}  // namespace

double make_weights(std::vector<double>& scores) {
    constexpr double kUnseen = -std::numeric_limits<double>::infinity();
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

void add_to(HostTensor& tensor, std::int64_t index, double value) {
    tensor.set(index, tensor.at(index) + value);
}

ExpectedAttention expected_attention(const WholeAttention& of) {
    const Shape& shape = of.queries.shape();
    const HostTensor zeros(shape, DType::f64);
    ExpectedAttention out{zeros, zeros, zeros, zeros,
                          HostTensor({shape[1], of.heads, shape[0]}, DType::f64)};
    for (std::int64_t number = 0; number < shape[1] * of.heads; ++number)
        for (std::int64_t query = 0; query < shape[0]; ++query)
            Head(of, number, out).attend(query);
    return out;
}

}  // namespace lockstep::lessons
