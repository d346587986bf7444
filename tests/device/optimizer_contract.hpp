#pragma once

#include "tests/device/support.hpp"

namespace lockstep::test {

TEST_CASE("A clip factor is the limit divided by the norm, and at most 1", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const double most = GENERATE(0.0, 0.5, 3.0, 1e30);
    Bench bench;
    for (const double squares : {0.0, 1e-20, 0.25, 9.0, 1e10, 1e36, double{INFINITY}}) {
        CAPTURE(most, squares);
        const Tensor sum_of_squares =
            bench->upload(HostTensor::of<double>({1}, std::vector{squares}).as(dtype));
        const Tensor factor = bench->empty({1}, dtype);
        bench->clip_factor(factor, sum_of_squares, most);
        Expected expected({1}, dtype);
        expected.add(std::min(1.0, most / (std::sqrt(squares) + 1e-6)));
        expected.check(bench->download(factor));
        bench->clip_factor(sum_of_squares, sum_of_squares, most);
        REQUIRE(bench->download(sum_of_squares) == bench->download(factor));
    }
    const Tensor nan = bench->empty({1}, dtype);
    bench->fill(nan, NAN);
    bench->clip_factor(nan, nan, most);
    REQUIRE(std::isnan(bench->download(nan).at(0)));
}

TEST_CASE("Gradients are clipped without a trip to the host", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const double most = GENERATE(0.3, 1e3);
    Bench bench;
    const HostTensor values = random_values({7, 15}, dtype, "gradient");
    const Tensor gradient = bench->upload(values);
    const Tensor factor = bench->zeros({1}, dtype);
    bench->sum_of_squares(factor, gradient);
    bench->clip_factor(factor, factor, most);
    bench->scale(gradient, factor);
    double squares = 0;
    for (std::int64_t i = 0; i < values.elements(); ++i)
        squares += values.at(i) * values.at(i);
    const double scaled_by = std::min(1.0, most / (std::sqrt(squares) + 1e-6));
    REQUIRE((scaled_by < 1) == (most < 1));
    Expected expected(values.shape(), dtype);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        expected.add(values.at(i) * scaled_by, std::abs(values.at(i)), 4);
    expected.check(bench->download(gradient));
}

TEST_CASE("SGD steps as PyTorch's does", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t count = GENERATE(0, 1, 16, 45);
    const double momentum = GENERATE(0.0, 0.9);
    const double decay = GENERATE(0.0, 0.1);
    Bench bench;
    const HostTensor start = random_values({count}, dtype, "parameter");
    const Tensor parameter = bench->upload(start);
    const Tensor velocity = momentum == 0 ? Tensor() : bench->zeros({count}, dtype);
    std::vector<double> p, v(static_cast<std::size_t>(count), 0.0);
    for (std::int64_t i = 0; i < count; ++i)
        p.push_back(start.at(i));
    for (int step = 1; step <= 5; ++step) {
        const HostTensor gradient =
            random_values({count}, dtype, fmt::format("g{}", step));
        bench->sgd(parameter, bench->upload(gradient), velocity, {0.3, momentum, decay});
        for (std::size_t i = 0; i < p.size(); ++i) {
            v[i] = momentum * v[i] + gradient.at(static_cast<std::int64_t>(i)) +
                   decay * p[i];
            p[i] -= 0.3 * v[i];
        }
    }
    Expected expected({count}, dtype);
    for (const double value : p)
        expected.add(value, 5, 5);
    expected.check(bench->download(parameter));
}

TEST_CASE("AdamW steps as in its paper and in PyTorch", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t count = GENERATE(0, 1, 16, 45);
    Bench bench;
    const AdamWOptions options{0.1, 0.8, 0.95, 1e-6, 0.2};
    const HostTensor start = random_values({count}, dtype, "parameter");
    const Tensor parameter = bench->upload(start);
    const Tensor first = bench->zeros({count}, dtype);
    const Tensor second = bench->zeros({count}, dtype);
    std::vector<double> p, m(static_cast<std::size_t>(count)), v(m);
    for (std::int64_t i = 0; i < count; ++i)
        p.push_back(start.at(i));
    for (int step = 1; step <= 5; ++step) {
        const HostTensor gradient =
            random_values({count}, dtype, fmt::format("g{}", step));
        bench->adamw(parameter, bench->upload(gradient), first, second, step, options);
        for (std::size_t i = 0; i < p.size(); ++i) {
            const double g = gradient.at(static_cast<std::int64_t>(i));
            m[i] = options.beta1 * m[i] + (1 - options.beta1) * g;
            v[i] = options.beta2 * v[i] + (1 - options.beta2) * g * g;
            const double m_hat = m[i] / (1 - std::pow(options.beta1, step));
            const double v_hat = v[i] / (1 - std::pow(options.beta2, step));
            p[i] -=
                options.learning_rate * (m_hat / (std::sqrt(v_hat) + options.epsilon) +
                                         options.weight_decay * p[i]);
        }
    }
    Expected values({count}, dtype), firsts({count}, dtype), seconds({count}, dtype);
    for (std::size_t i = 0; i < p.size(); ++i) {
        values.add(p[i], 5, 5);
        firsts.add(m[i], 2, 5);
        seconds.add(v[i], 2, 5);
    }
    values.check(bench->download(parameter));
    firsts.check(bench->download(first));
    seconds.check(bench->download(second));
}

}  // namespace lockstep::test
