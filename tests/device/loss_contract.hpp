#pragma once

#include <algorithm>

#include "tests/device/support.hpp"

namespace lockstep::test {

/// log(softmax(row)), computed relative to the row's largest element.
struct LogSoftmax {
    double most = -INFINITY;
    double log_sum = 0;

    LogSoftmax(const HostTensor& x, std::int64_t row) {
        const std::int64_t columns = x.shape().columns();
        for (std::int64_t j = 0; j < columns; ++j)
            most = std::max(most, x.at(row * columns + j));
        double sum = 0;
        for (std::int64_t j = 0; j < columns; ++j)
            sum += std::exp(x.at(row * columns + j) - most);
        log_sum = std::log(sum);
    }
    double log_probability(double logit) const { return logit - most - log_sum; }
};

TEST_CASE("Softmax and cross entropy equal their definitions, for logits of any size",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 1}, Shape{3, 7}, Shape{5, 16}, Shape{33, 100},
                                 Shape{2, 3, 50}, Shape{2, 3000}, Shape{0, 4});
    const double largest = GENERATE(1.0, 50.0, 1e4);
    CAPTURE(shape.text(), largest);
    Bench bench;
    const std::int64_t rows = shape.matrix_rows(), columns = shape.columns();
    const HostTensor x = random_values(shape, dtype, "x", -largest, largest);
    const HostTensor ids = random_indices({rows}, columns, "ids");
    const Tensor logits = bench->upload(x);
    const Tensor targets = bench->upload(ids);

    Expected y(shape, dtype), losses({rows}, dtype), d_logits(shape, dtype),
        sums({rows}, dtype);
    const auto size = static_cast<double>(columns);
    for (std::int64_t i = 0; i < rows; ++i) {
        const LogSoftmax reference(x, i);
        const auto target = static_cast<std::int64_t>(ids.at(i));
        const double loss = -reference.log_probability(x.at(i * columns + target));
        losses.add(loss, loss + 1, size);
        const double whole = reference.most + reference.log_sum;
        sums.add(whole, std::abs(whole) + std::abs(reference.log_sum) + 1, size);
        for (std::int64_t j = 0; j < columns; ++j) {
            // An exponent e has a rounding error of |e| epsilon. This is the relative
            // error of the power.
            const double exponent = reference.log_probability(x.at(i * columns + j));
            const double p = std::exp(exponent);
            const double off = p * (2 + std::abs(exponent));
            y.add(p, off, size);
            d_logits.add(-3 * (p - (j == target ? 1 : 0)),
                         3 * (off + (j == target ? 1 : 0)), size);
        }
    }
    sums.check(bench->download(bench->log_sum_exp(logits)));
    y.check(bench->download(bench->softmax(logits)));
    losses.check(bench->download(bench->cross_entropy(logits, targets)));
    d_logits.check(bench->download(bench->cross_entropy_backward(logits, targets, -3)));
}

TEST_CASE("Rows and gradients are divided by the rows' sums", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 1}, Shape{7, 3}, Shape{9, 130}, Shape{2, 3, 8},
                                 Shape{2, 3000}, Shape{0, 4}, Shape{3, 0});
    CAPTURE(shape.text());
    Bench bench;
    const std::int64_t columns = shape.columns();
    const HostTensor x = random_values(shape, dtype, "x", 0.1, 1);
    const HostTensor dy = random_values(shape, dtype, "dy");
    Expected y(shape, dtype), dx(shape, dtype);
    for (std::int64_t i = 0; i < shape.matrix_rows(); ++i) {
        double sum = 0, along = 0;
        for (std::int64_t j = 0; j < columns; ++j) {
            sum += x.at(i * columns + j);
            along += x.at(i * columns + j) * dy.at(i * columns + j);
        }
        for (std::int64_t j = 0; j < columns; ++j) {
            const double share = x.at(i * columns + j) / sum;
            y.add(share, 2 * share, static_cast<double>(columns));
            dx.add((dy.at(i * columns + j) - along / sum) / sum, 2 / sum,
                   static_cast<double>(columns));
        }
    }
    const Tensor on_device = bench->upload(x);
    y.check(bench->download(bench->normalize_rows(on_device)));
    dx.check(
        bench->download(bench->normalize_rows_backward(on_device, bench->upload(dy))));
}

TEST_CASE("The log of an empty sum is -infinity", kTags) {
    Bench bench;
    const HostTensor sums =
        bench->download(bench->log_sum_exp(bench->empty({3, 0}, DType::f32)));
    for (std::int64_t i = 0; i < 3; ++i)
        REQUIRE(sums.at(i) == -INFINITY);
}

TEST_CASE("The gradient of softmax is y (dy - y . dy)", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 1}, Shape{7, 3}, Shape{9, 130}, Shape{3, 0});
    Bench bench;
    const std::int64_t columns = shape.columns();
    const HostTensor y = random_values(shape, dtype, "y", 0, 1);
    const HostTensor dy = random_values(shape, dtype, "dy");
    Expected expected(shape, dtype);
    for (std::int64_t i = 0; i < shape.matrix_rows(); ++i) {
        Sum along;
        for (std::int64_t j = 0; j < columns; ++j)
            along.add(y.at(i * columns + j) * dy.at(i * columns + j));
        for (std::int64_t j = 0; j < columns; ++j)
            expected.add(y.at(i * columns + j) * (dy.at(i * columns + j) - along.value),
                         1 + std::sqrt(along.squares), static_cast<double>(columns));
    }
    expected.check(
        bench->download(bench->softmax_backward(bench->upload(y), bench->upload(dy))));
}

TEST_CASE("A masked logit gets probability zero; a row of masked logits gives NaN",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t columns = GENERATE(3, 16, 40);
    Bench bench;
    HostTensor x({2, columns}, dtype);
    for (std::int64_t j = 0; j < columns; ++j) {
        if (j % 2 == 1) x.set(j, -INFINITY);
        x.set(columns + j, -INFINITY);
    }
    const HostTensor y = bench->download(bench->softmax(bench->upload(x)));
    for (std::int64_t j = 0; j < columns; ++j) {
        const double share = 1.0 / static_cast<double>((columns + 1) / 2);
        if (j % 2 == 1)
            REQUIRE(y.at(j) == 0);
        else
            REQUIRE_THAT(y.at(j), Catch::Matchers::WithinRel(share, 1e-6));
        REQUIRE(std::isnan(y.at(columns + j)));
    }
    const Tensor targets =
        bench->upload(HostTensor::of<std::int32_t>({2}, std::vector{1, 0}));
    const HostTensor losses =
        bench->download(bench->cross_entropy(bench->upload(x), targets));
    REQUIRE(losses.at(0) == INFINITY);
    REQUIRE(std::isnan(losses.at(1)));
}

TEST_CASE("A target outside the columns is named", kTags) {
    const std::int32_t wrong = GENERATE(-1, 5, 1000000);
    Bench bench;
    const Tensor logits = bench->zeros({3, 5}, DType::f32);
    const Tensor targets =
        bench->upload(HostTensor::of<std::int32_t>({3}, std::vector{4, 0, wrong}));
    const std::string sentence = fmt::format(": index 2 is {}, outside [0, 5)", wrong);
    refuses("cross_entropy" + sentence, [&] { bench->cross_entropy(logits, targets); });
    refuses("cross_entropy_backward" + sentence,
            [&] { bench->cross_entropy_backward(logits, targets, 1); });
    refuses("cross_entropy: index 0 is 4, outside [0, 0)", [&] {
        bench->cross_entropy(bench->empty({3, 0}, DType::f32), targets);
    });
}

TEST_CASE("Squared error is the sum of squares", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t count = GENERATE(0, 1, 16, 37, 5000);
    Bench bench;
    const HostTensor a = random_values({count}, dtype, "prediction");
    const HostTensor b = random_values({count}, dtype, "target");
    const Tensor prediction = bench->upload(a);
    const Tensor target = bench->upload(b);
    Sum sum;
    Expected gradient({count}, dtype);
    for (std::int64_t i = 0; i < count; ++i) {
        sum.add(std::pow(a.at(i) - b.at(i), 2));
        gradient.add(0.5 * 2 * (a.at(i) - b.at(i)), 2);
    }
    Expected loss({1}, dtype);
    sum.expect(loss);
    loss.check(bench->download(bench->squared_error(prediction, target)));
    gradient.check(
        bench->download(bench->squared_error_backward(prediction, target, 0.5)));
}

}  // namespace lockstep::test
