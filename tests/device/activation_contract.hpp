#pragma once

#include <functional>

#include "tests/device/support.hpp"

namespace lockstep::test {

/// Returns arguments for tests of functions: near zero, in both tails, and extreme.
inline HostTensor trial_values(DType dtype) {
    std::vector<double> values = {0,    -0.0, 1e-20, -1e-20, 1e-5, 3e-4, 5e-4, 8.1,
                                  -8.1, 20,   -20,   100,    -100, 1e4,  -1e4};
    for (int i = 0; i < 1000; ++i)
        values.push_back(-7 + 0.0141 * i);
    return HostTensor::of({static_cast<std::int64_t>(values.size())}, values).as(dtype);
}

/// Expects f(x) for each trial value x, with the error of one rounding of size(x).
inline Expected each(const HostTensor& x, const std::function<double(double)>& f,
                     const std::function<double(double)>& size) {
    Expected expected(x.shape(), x.dtype());
    for (std::int64_t i = 0; i < x.elements(); ++i)
        expected.add(f(x.at(i)), size(x.at(i)));
    return expected;
}

inline double gelu_of(double x) {
    return 0.5 * x * std::erfc(-x / std::sqrt(2.0));
}
inline double gelu_slope(double x) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0)) +
           x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
}

TEST_CASE("tanh is tanh", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor x = trial_values(dtype);
    const auto f = [](double a) { return std::tanh(a); };
    each(x, f, [&](double a) {
        return std::abs(f(a));
    }).check(bench->download(bench->tanh(bench->upload(x))));
}

TEST_CASE("The derivative of tanh is 1 - y^2", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const std::int64_t count : {0, 1, 7, 16, 33, 1000}) {
        const HostTensor y = random_values({count}, dtype, "y");
        const HostTensor dy = random_values({count}, dtype, "dy");
        Expected expected({count}, dtype);
        for (std::int64_t i = 0; i < count; ++i)
            expected.add(dy.at(i) * (1 - y.at(i) * y.at(i)), std::abs(dy.at(i)));
        expected.check(
            bench->download(bench->tanh_backward(bench->upload(y), bench->upload(dy))));
    }
}

TEST_CASE("A sigmoid is 1 / (1 + exp(-x)), and its derivative y (1 - y)", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor x = trial_values(dtype);
    const auto f = [](double a) { return 1 / (1 + std::exp(-a)); };
    // For very negative x the relative error of exp(-x) is |x| epsilon.
    each(x, f, [&](double a) {
        return f(a) * (1 + std::abs(a));
    }).check(bench->download(bench->sigmoid(bench->upload(x))));
    for (const std::int64_t count : {0, 1, 7, 16, 33, 1000}) {
        const HostTensor y = random_values({count}, dtype, "y", 0, 1);
        const HostTensor dy = random_values({count}, dtype, "dy");
        Expected expected({count}, dtype);
        for (std::int64_t i = 0; i < count; ++i)
            expected.add(dy.at(i) * y.at(i) * (1 - y.at(i)), std::abs(dy.at(i)));
        expected.check(bench->download(
            bench->sigmoid_backward(bench->upload(y), bench->upload(dy))));
    }
}

TEST_CASE("exact GELU is x times the normal distribution function", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor x = trial_values(dtype);
    each(x, gelu_of, [](double a) {
        return std::abs(a);
    }).check(bench->download(bench->gelu(bench->upload(x))));
}

TEST_CASE("GELU's derivative is its slope", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor x = trial_values(dtype);
    const HostTensor dy = random_values(x.shape(), dtype, "dy");
    Expected expected(x.shape(), dtype);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        expected.add(dy.at(i) * gelu_slope(x.at(i)), std::abs(dy.at(i)));
    const Tensor dx = bench->gelu_backward(bench->upload(x), bench->upload(dy));
    expected.check(bench->download(dx));
}

inline double gelu_by_tanh_of(double x) {
    return 0.5 * x *
           (1 + std::tanh(std::sqrt(2 / std::acos(-1.0)) * (x + 0.044715 * x * x * x)));
}
inline double gelu_by_tanh_slope(double x) {
    // Here 1 - tanh^2 must be more exact than in the result under test.
    using Exact = long double;
    const Exact scale = std::sqrt(2 / std::acos(Exact{-1})), y = x;
    const Exact t = std::tanh(scale * (y + 0.044715L * y * y * y));
    return static_cast<double>((1 + t) / 2 +
                               y / 2 * (1 - t * t) * scale * (1 + 0.134145L * y * y));
}

TEST_CASE("GELU by tanh is the formula of its paper, and so is its derivative", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor x = trial_values(dtype);
    const Tensor on_device = bench->upload(x);
    const Tensor y = bench->gelu(on_device, GeluForm::tanh);
    each(x, gelu_by_tanh_of, [](double a) {
        return std::abs(a);
    }).check(bench->download(y));
    const HostTensor dy = random_values(x.shape(), dtype, "dy");
    Expected expected(x.shape(), dtype);
    for (std::int64_t i = 0; i < x.elements(); ++i) {
        // 1 - sigmoid(2 u) has an error of epsilon, which is multiplied by 2 x u'.
        const double a = std::min(std::abs(x.at(i)), 8.0);
        expected.add(dy.at(i) * gelu_by_tanh_slope(x.at(i)),
                     std::abs(dy.at(i)) * (1 + a * 1.6 * (1 + 0.14 * a * a)));
    }
    expected.check(bench->download(
        bench->gelu_backward(on_device, bench->upload(dy), GeluForm::tanh)));
}

TEST_CASE("The two forms of GELU differ, by less than half a thousandth", kTags) {
    Bench bench;
    const Tensor x = bench->upload(random_values({1000}, DType::f64, "x", -5, 5));
    const HostTensor exact = bench->download(bench->gelu(x));
    const HostTensor by_tanh = bench->download(bench->gelu(x, GeluForm::tanh));
    double most = 0;
    for (std::int64_t i = 0; i < 1000; ++i)
        most = std::max(most, std::abs(exact.at(i) - by_tanh.at(i)));
    REQUIRE(most > 1e-4);
    REQUIRE(most < 5e-4);
}

inline double silu_of(double x) {
    return x / (1 + std::exp(-x));
}
inline double silu_slope(double x) {
    const double sigma = 1 / (1 + std::exp(-x));
    return sigma + x * sigma * (1 - sigma);
}

TEST_CASE("SwiGLU and its derivative use the first half of a row as a gate of the second",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t width = GENERATE(1, 5, 16, 33, 1015);
    CAPTURE(width);
    const HostTensor gates = trial_values(dtype);
    const std::int64_t rows = (gates.elements() + width - 1) / width;
    HostTensor x = random_values({rows, 2 * width}, dtype, "x");
    for (std::int64_t i = 0; i < rows * width; ++i)
        x.set(i / width * 2 * width + i % width, gates.at(i % gates.elements()));
    const HostTensor dy = random_values({rows, width}, dtype, "dy");
    Expected y({rows, width}, dtype), dx({rows, 2 * width}, dtype);
    for (std::int64_t i = 0; i < rows; ++i) {
        const auto gate = [&](std::int64_t j) { return x.at(2 * i * width + j); };
        const auto gradient = [&](std::int64_t j) { return dy.at(i * width + j); };
        for (std::int64_t j = 0; j < width; ++j) {
            const double rest = gate(width + j);
            y.add(silu_of(gate(j)) * rest, std::abs(gate(j) * rest));
            // 1 - sigmoid(gate) has an error of at most epsilon.
            dx.add(
                gradient(j) * rest * silu_slope(gate(j)),
                std::abs(gradient(j) * rest) * (1 + std::min(std::abs(gate(j)), 20.0)));
        }
        for (std::int64_t j = 0; j < width; ++j)
            dx.add(gradient(j) * silu_of(gate(j)), std::abs(gradient(j) * gate(j)));
    }
    Bench bench;
    const Tensor on_device = bench->upload(x);
    y.check(bench->download(bench->swiglu(on_device)));
    dx.check(bench->download(bench->swiglu_backward(on_device, bench->upload(dy))));
}

TEST_CASE("SwiGLU keeps leading dimensions", kTags) {
    Bench bench;
    const Tensor x = bench->upload(random_values({2, 3, 8}, DType::f32, "x"));
    const Tensor y = bench->swiglu(x);
    REQUIRE(y.shape() == Shape{2, 3, 4});
    REQUIRE(bench->swiglu_backward(x, y).shape() == Shape{2, 3, 8});
}

TEST_CASE("The references' derivatives are their slopes", kTags) {
    for (const double x : {-3.0, -0.5, 0.0, 0.3, 2.0}) {
        const double h = 1e-6;
        const double slope = (gelu_of(x + h) - gelu_of(x - h)) / (2 * h);
        REQUIRE_THAT(gelu_slope(x), Catch::Matchers::WithinAbs(slope, 1e-9));
        const double by_tanh =
            (gelu_by_tanh_of(x + h) - gelu_by_tanh_of(x - h)) / (2 * h);
        REQUIRE_THAT(gelu_by_tanh_slope(x), Catch::Matchers::WithinAbs(by_tanh, 1e-9));
        const double silu = (silu_of(x + h) - silu_of(x - h)) / (2 * h);
        REQUIRE_THAT(silu_slope(x), Catch::Matchers::WithinAbs(silu, 1e-9));
    }
}

TEST_CASE("Activations of a NaN are NaN, and of an empty tensor empty", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const Tensor nan = bench->empty({19}, dtype);
    bench->fill(nan, NAN);
    const Tensor one = bench->empty({19}, dtype);
    bench->fill(one, 1);
    for (const Tensor& result :
         {bench->tanh(nan), bench->gelu(nan), bench->gelu_backward(nan, one),
          bench->gelu(nan, GeluForm::tanh),
          bench->gelu_backward(nan, one, GeluForm::tanh), bench->tanh_backward(nan, one),
          bench->softmax(nan)}) {
        const HostTensor got = bench->download(result);
        for (std::int64_t i = 0; i < 19; ++i)
            REQUIRE(std::isnan(got.at(i)));
    }
    const Tensor gated = bench->empty({3, 38}, dtype);
    bench->fill(gated, NAN);
    const Tensor ones = bench->empty({3, 19}, dtype);
    bench->fill(ones, 1);
    for (const Tensor& result :
         {bench->swiglu(gated), bench->swiglu_backward(gated, ones)}) {
        const HostTensor got = bench->download(result);
        for (std::int64_t i = 0; i < got.elements(); ++i)
            REQUIRE(std::isnan(got.at(i)));
    }
    const Tensor nothing = bench->empty({3, 0}, dtype);
    for (const Tensor& result :
         {bench->tanh(nothing), bench->gelu(nothing), bench->swiglu(nothing),
          bench->swiglu_backward(nothing, nothing),
          bench->gelu_backward(nothing, nothing)})
        REQUIRE(result.shape() == Shape{3, 0});
}

}  // namespace lockstep::test
