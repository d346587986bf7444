#pragma once

#include "tests/device/support.hpp"

namespace lockstep::test {

/// Layer norm and its gradients by their definitions.
struct NormReference {
    std::int64_t rows, columns;
    std::vector<double> mean, rstd, normalized;

    NormReference(const HostTensor& x, double epsilon)
        : rows(x.shape().matrix_rows()), columns(x.shape().columns()) {
        const auto n = static_cast<double>(columns);
        for (std::int64_t i = 0; i < rows; ++i) {
            double sum = 0, squares = 0;
            for (std::int64_t j = 0; j < columns; ++j)
                sum += x.at(i * columns + j);
            for (std::int64_t j = 0; j < columns; ++j)
                squares += std::pow(x.at(i * columns + j) - sum / n, 2);
            mean.push_back(sum / n);
            rstd.push_back(1 / std::sqrt(squares / n + epsilon));
            for (std::int64_t j = 0; j < columns; ++j)
                normalized.push_back((x.at(i * columns + j) - mean.back()) * rstd.back());
        }
    }
    double at(std::int64_t i, std::int64_t j) const {
        return normalized[static_cast<std::size_t>(i * columns + j)];
    }
};

TEST_CASE("Layer norm and its gradients equal their definitions", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 2}, Shape{3, 7}, Shape{33, 16}, Shape{5, 257},
                                 Shape{2, 3, 40}, Shape{0, 4});
    CAPTURE(shape.text());
    Bench bench;
    const double epsilon = 1e-5;
    const std::int64_t rows = shape.matrix_rows(), columns = shape.columns();
    const HostTensor x = random_values(shape, dtype, "x", -2, 3);
    const HostTensor weight = random_values({columns}, dtype, "weight");
    const HostTensor bias = random_values({columns}, dtype, "bias");
    const HostTensor dy = random_values(shape, dtype, "dy");
    const NormReference reference(x, epsilon);
    const auto size = static_cast<double>(columns);

    const Tensor on_device = bench->upload(x);
    const Tensor gain = bench->upload(weight);
    const Device::Normalized saved =
        bench->layer_norm(on_device, gain, bench->upload(bias), epsilon);
    Expected y(shape, dtype), mean({rows}, dtype), rstd({rows}, dtype), dx(shape, dtype);
    for (std::int64_t i = 0; i < rows; ++i) {
        const double r = reference.rstd[static_cast<std::size_t>(i)];
        mean.add(reference.mean[static_cast<std::size_t>(i)], 3);
        rstd.add(r, 3 * r, size);
        double along_ones = 0, along_x = 0;
        for (std::int64_t j = 0; j < columns; ++j) {
            const double g = dy.at(i * columns + j) * weight.at(j);
            along_ones += g / size;
            along_x += g * reference.at(i, j) / size;
            y.add(reference.at(i, j) * weight.at(j) + bias.at(j), 3 * (1 + 3 * r), size);
        }
        for (std::int64_t j = 0; j < columns; ++j) {
            const double g = dy.at(i * columns + j) * weight.at(j);
            dx.add(r * (g - along_ones - reference.at(i, j) * along_x),
                   5 * r * (1 + 3 * r), size);
        }
    }
    y.check(bench->download(saved.y));
    mean.check(bench->download(saved.mean));
    rstd.check(bench->download(saved.rstd));
    const Tensor gradient = bench->upload(dy);
    dx.check(bench->download(
        bench->layer_norm_backward_input(gradient, on_device, gain, saved)));

    const Tensor d_weight = bench->upload(weight);
    const Tensor d_bias = bench->upload(bias);
    bench->layer_norm_backward_weight(d_weight, d_bias, gradient, on_device, saved);
    Expected for_weight({columns}, dtype), for_bias({columns}, dtype);
    for (std::int64_t j = 0; j < columns; ++j) {
        Sum weight_sum, bias_sum;
        weight_sum.add(weight.at(j));
        bias_sum.add(bias.at(j));
        for (std::int64_t i = 0; i < rows; ++i) {
            weight_sum.add(dy.at(i * columns + j) * reference.at(i, j));
            bias_sum.add(dy.at(i * columns + j));
        }
        for_weight.add(weight_sum.value, 5 * std::sqrt(weight_sum.squares) + 1,
                       static_cast<double>(rows + columns));
        bias_sum.expect(for_bias);
    }
    for_weight.check(bench->download(d_weight));
    for_bias.check(bench->download(d_bias));
}

TEST_CASE("Layer norm of a large offset keeps its digits", kTags) {
    // E[x^2] - E[x]^2 loses all digits: (1000 + d)^2 needs 12 digits and f32 has 7.
    Bench bench;
    HostTensor x({1, 64}, DType::f32);
    for (std::int64_t j = 0; j < 64; ++j)
        x.set(j, 1000 + (j % 2 == 0 ? 0.125 : -0.125));
    const Tensor ones = bench->empty({64}, DType::f32);
    bench->fill(ones, 1);
    const Device::Normalized result =
        bench->layer_norm(bench->upload(x), ones, bench->zeros({64}, DType::f32), 0);
    const HostTensor y = bench->download(result.y);
    for (std::int64_t j = 0; j < 64; ++j)
        REQUIRE_THAT(y.at(j), Catch::Matchers::WithinAbs(j % 2 == 0 ? 1 : -1, 1e-3));
}

TEST_CASE("Layer norm of rows without columns has the statistics of a constant", kTags) {
    Bench bench;
    const Tensor none = bench->empty({0}, DType::f64);
    const Device::Normalized result =
        bench->layer_norm(bench->empty({2, 0}, DType::f64), none, none, 0.25);
    REQUIRE(bench->download(result.mean).at(1) == 0);
    REQUIRE(bench->download(result.rstd).at(1) == 2);
}

/// Root mean square norm by its definition.
struct RmsReference {
    std::int64_t columns;
    std::vector<double> rstd, normalized;

    RmsReference(const HostTensor& x, double epsilon) : columns(x.shape().columns()) {
        for (std::int64_t i = 0; i < x.shape().matrix_rows(); ++i) {
            double squares = 0;
            for (std::int64_t j = 0; j < columns; ++j)
                squares += std::pow(x.at(i * columns + j), 2);
            rstd.push_back(1 /
                           std::sqrt(squares / static_cast<double>(columns) + epsilon));
            for (std::int64_t j = 0; j < columns; ++j)
                normalized.push_back(x.at(i * columns + j) * rstd.back());
        }
    }
    double at(std::int64_t i, std::int64_t j) const {
        return normalized[static_cast<std::size_t>(i * columns + j)];
    }
};

TEST_CASE("Root mean square norm and its gradients equal their definitions", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 1}, Shape{3, 7}, Shape{33, 16}, Shape{5, 257},
                                 Shape{2, 3, 40}, Shape{0, 4});
    const double epsilon = GENERATE(1e-5, 0.5);
    CAPTURE(shape.text(), epsilon);
    Bench bench;
    const std::int64_t rows = shape.matrix_rows(), columns = shape.columns();
    const HostTensor x = random_values(shape, dtype, "x", -2, 3);
    const HostTensor weight = random_values({columns}, dtype, "weight");
    const HostTensor dy = random_values(shape, dtype, "dy");
    const RmsReference reference(x, epsilon);
    const auto size = static_cast<double>(columns);

    Expected y(shape, dtype), rstd({rows}, dtype), dx(shape, dtype);
    for (std::int64_t i = 0; i < rows; ++i) {
        const double r = reference.rstd[static_cast<std::size_t>(i)];
        rstd.add(r, 3 * r, size);
        double along_x = 0;
        for (std::int64_t j = 0; j < columns; ++j) {
            along_x += dy.at(i * columns + j) * weight.at(j) * reference.at(i, j) / size;
            y.add(reference.at(i, j) * weight.at(j), 3 * r, size);
        }
        for (std::int64_t j = 0; j < columns; ++j)
            dx.add(r * (dy.at(i * columns + j) * weight.at(j) -
                        reference.at(i, j) * along_x),
                   5 * r * (1 + 3 * r), size);
    }
    Expected d_weight({columns}, dtype);
    for (std::int64_t j = 0; j < columns; ++j) {
        Sum sum;
        sum.add(weight.at(j));
        for (std::int64_t i = 0; i < rows; ++i)
            sum.add(dy.at(i * columns + j) * reference.at(i, j));
        d_weight.add(sum.value, 5 * std::sqrt(sum.squares) + 1,
                     static_cast<double>(rows + columns));
    }

    const Tensor on_device = bench->upload(x);
    const Tensor gain = bench->upload(weight);
    const Tensor gradient = bench->upload(dy);
    const Normalized saved = bench->rms_norm(on_device, gain, epsilon);
    REQUIRE_FALSE(saved.mean);
    y.check(bench->download(saved.y));
    rstd.check(bench->download(saved.rstd));
    dx.check(bench->download(
        bench->rms_norm_backward_input(gradient, on_device, gain, saved.rstd)));
    bench->rms_norm_backward_weight(gain, gradient, on_device, saved.rstd);
    d_weight.check(bench->download(gain));
}

TEST_CASE("Root mean square norm of rows without columns is that of zeros", kTags) {
    Bench bench;
    const Tensor none = bench->empty({0}, DType::f64);
    const Normalized result =
        bench->rms_norm(bench->empty({2, 0}, DType::f64), none, 0.25);
    REQUIRE(result.y.shape() == Shape{2, 0});
    REQUIRE(bench->download(result.rstd).at(1) == 2);
}

}  // namespace lockstep::test
