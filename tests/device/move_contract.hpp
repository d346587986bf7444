#pragma once

#include <algorithm>

#include "tests/device/support.hpp"

namespace lockstep::test {

inline const std::vector<std::int64_t> kCounts = {0, 1, 7, 16, 17, 100, 1023, 4099};

/// Returns values that are whole numbers in any dtype, so that results are exact.
inline HostTensor whole_values(Shape shape, DType dtype, const std::string& name) {
    HostTensor values = random_values(shape, DType::f64, name, -9, 9);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, std::floor(values.at(i)));
    return values.as(dtype);
}

TEST_CASE("Values that are uploaded come back", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::i32, DType::bf16);
    Bench bench;
    for (const std::int64_t count : kCounts) {
        HostTensor values({count}, dtype);
        for (std::int64_t i = 0; i < values.bytes(); ++i)
            values.data()[i] = static_cast<std::byte>(i % 251);
        const Tensor tensor = bench->upload(values);
        REQUIRE(bench->download(tensor) == values);
        REQUIRE(bench->peek(tensor) == values);
        const Tensor copy = bench->zeros({count}, dtype);
        bench->copy(copy, tensor);
        REQUIRE(bench->download(copy) == values);
        bench->upload_into(copy, HostTensor({count}, dtype));
        REQUIRE(bench->download(copy) == HostTensor({count}, dtype));
    }
}

TEST_CASE("Fill sets every element", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::i32);
    Bench bench;
    for (const std::int64_t count : kCounts) {
        const Tensor tensor = bench->empty({count}, dtype);
        for (const double value : {0.0, -3.0}) {
            bench->fill(tensor, value);
            const HostTensor got = bench->download(tensor);
            for (std::int64_t i = 0; i < count; ++i)
                REQUIRE(got.at(i) == value);
        }
    }
}

TEST_CASE("Blocks of columns are copied and nothing beside them", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::i32);
    Bench bench;
    const HostTensor source = whole_values({5, 9}, dtype, "source");
    const HostTensor before = whole_values({5, 12}, dtype, "destination");
    const auto copied = [&](std::int64_t to, std::int64_t from, std::int64_t count) {
        const Tensor destination = bench->upload(before);
        bench->copy_columns(destination, to, bench->upload(source), from, count);
        const HostTensor got = bench->download(destination);
        for (std::int64_t i = 0; i < 5; ++i) {
            for (std::int64_t j = 0; j < 12; ++j) {
                const bool inside = j >= to && j < to + count;
                const double value =
                    inside ? source.at(i * 9 + j - to + from) : before.at(i * 12 + j);
                REQUIRE(got.at(i * 12 + j) == value);
            }
        }
    };
    copied(2, 3, 4);
    copied(0, 0, 9);
    copied(12, 9, 0);
}

TEST_CASE("Elementwise operations equal their definitions", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::i32);
    Bench bench;
    for (const std::int64_t count : kCounts) {
        const HostTensor a = whole_values({count}, dtype, "a");
        const HostTensor b = whole_values({count}, dtype, "b");
        const auto gives = [&](auto&& operation, auto&& value) {
            const Tensor da = bench->upload(a);
            const Tensor db = bench->upload(b);
            operation(da, db);
            const HostTensor got = bench->download(da);
            for (std::int64_t i = 0; i < count; ++i)
                REQUIRE(got.at(i) == value(a.at(i), b.at(i)));
            REQUIRE(bench->download(db) == b);
        };
        const auto combined = [&](Reduction reduction, auto&& value) {
            gives([&](const Tensor& x,
                      const Tensor& y) { bench->combine(x, y, reduction); },
                  value);
        };
        const auto sum = [](double x, double y) { return x + y; };
        const auto product = [](double x, double y) { return x * y; };
        gives([&](const Tensor& x, const Tensor& y) { bench->add(x, y); }, sum);
        gives([&](const Tensor& x, const Tensor& y) { bench->add(x, y, -2); },
              [](double x, double y) { return x - 2 * y; });
        gives([&](const Tensor& x, const Tensor&) { bench->scale(x, 3); },
              [](double x, double) { return 3 * x; });
        gives([&](const Tensor& x, const Tensor& y) { bench->multiply(x, y); }, product);
        combined(Reduction::sum, sum);
        combined(Reduction::product, product);
        combined(Reduction::minimum, [](double x, double y) { return std::min(x, y); });
        combined(Reduction::maximum, [](double x, double y) { return std::max(x, y); });
    }
}

TEST_CASE("A tensor is scaled by a number on the device", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    const HostTensor factors = random_values({3}, dtype, "factors");
    for (const std::int64_t count : kCounts) {
        const HostTensor values = random_values({count}, dtype, "x");
        const Tensor x = bench->upload(values);
        const Tensor numbers = bench->upload(factors);
        bench->scale(x, numbers.slice(1, 1));
        Expected expected({count}, dtype);
        for (std::int64_t i = 0; i < count; ++i)
            expected.add(values.at(i) * factors.at(1));
        expected.check(bench->download(x));
        REQUIRE(bench->download(numbers) == factors);
    }
}

TEST_CASE("A tensor can be combined with itself", kTags) {
    Bench bench;
    const HostTensor values = whole_values({100}, DType::f32, "x");
    const Tensor x = bench->upload(values);
    bench->add(x, x);
    bench->multiply(x, x);
    bench->copy(x, x);
    const HostTensor got = bench->download(x);
    for (std::int64_t i = 0; i < 100; ++i)
        REQUIRE(got.at(i) == 4 * values.at(i) * values.at(i));
}

TEST_CASE("The extremes of a number and a NaN are NaN", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Reduction reduction = GENERATE(Reduction::minimum, Reduction::maximum);
    Bench bench;
    HostTensor a({20}, dtype), b({20}, dtype);
    a.set(3, NAN);
    b.set(17, NAN);
    const Tensor result = bench->upload(a);
    bench->combine(result, bench->upload(b), reduction);
    const HostTensor got = bench->download(result);
    for (std::int64_t i = 0; i < 20; ++i)
        REQUIRE(std::isnan(got.at(i)) == (i == 3 || i == 17));
}

TEST_CASE("Integers wrap around", kTags) {
    Bench bench;
    const auto i32 = [&](std::int32_t value) {
        return bench->upload(HostTensor::of<std::int32_t>({1}, std::vector{value}));
    };
    const Tensor x = i32(2147483647);
    bench->add(x, i32(2));
    REQUIRE(bench->download(x).at(0) == -2147483647);
    bench->multiply(x, i32(2));
    REQUIRE(bench->download(x).at(0) == 2);
    const Tensor sum = i32(0);
    bench->sum(sum, bench->upload(
                        HostTensor::of<std::int32_t>({2}, std::vector{2147483647, 1})));
    REQUIRE(bench->download(sum).at(0) == -2147483648.0);
}

TEST_CASE("Sum adds all elements up", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const std::int64_t count : kCounts) {
        const HostTensor x = random_values({count}, dtype, "x");
        const Tensor result = bench->empty({1}, dtype);
        Sum sum;
        for (std::int64_t i = 0; i < count; ++i)
            sum.add(x.at(i));
        bench->sum(result, bench->upload(x));
        Expected expected({1}, dtype);
        sum.expect(expected);
        expected.check(bench->download(result));

        bench->sum(result, bench->upload(x), true);
        Expected twice({1}, dtype);
        sum.expect(twice, 2);
        twice.check(bench->download(result));
    }
}

TEST_CASE("A cast rounds each element to the other type", kTags) {
    const DType from = GENERATE(DType::f32, DType::f64);
    const DType to = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const std::int64_t count : kCounts) {
        HostTensor values = random_values({count}, from, "x", -1e3, 1e3);
        if (count > 2) {
            values.set(0, NAN);
            values.set(1, from == DType::f64 ? 1e300 : INFINITY);
            values.set(2, -0.0);
        }
        const Tensor result = bench->empty({count}, to);
        bench->cast(result, bench->upload(values));
        HostTensor expected({count}, to);
        for (std::int64_t i = 0; i < count; ++i)
            expected.set(i, values.at(i));
        const HostTensor got = bench->download(result);
        for (std::int64_t i = 0; i < count; ++i) {
            const double a = got.at(i), b = expected.at(i);
            REQUIRE(((std::isnan(a) && std::isnan(b)) ||
                     (a == b && std::signbit(a) == std::signbit(b))));
        }
    }
}

TEST_CASE("A sum of squares is added to the destination's value", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    Bench bench;
    for (const std::int64_t count : kCounts) {
        const HostTensor x = random_values({count}, dtype, "x");
        const Tensor result = bench->zeros({1}, dtype);
        Sum sum;
        for (std::int64_t i = 0; i < count; ++i)
            sum.add(x.at(i) * x.at(i));
        bench->sum_of_squares(result, bench->upload(x));
        Expected expected({1}, dtype);
        sum.expect(expected);
        expected.check(bench->download(result));

        bench->sum_of_squares(result, bench->upload(x));
        Expected twice({1}, dtype);
        sum.expect(twice, 2);
        twice.check(bench->download(result));
    }
}

TEST_CASE("A sum of large squares does not overflow", kTags) {
    Bench bench;
    const Tensor x = bench->upload(HostTensor::of<float>({2}, std::vector{3e18F, 4e18F}));
    const Tensor result = bench->zeros({1}, DType::f32);
    bench->sum_of_squares(result, x);
    REQUIRE(bench->download(result).at(0) == static_cast<double>(2.5e37F));
    bench->sum_of_squares(result, bench->empty({0}, DType::f32));
    REQUIRE(bench->download(result).at(0) == static_cast<double>(2.5e37F));
}

TEST_CASE("A communicator's moves work between devices, and on empty tensors", kTags) {
    Bench bench;
    PlainMonitor other_monitor;
    const std::unique_ptr<Device> other = make_device(1, other_monitor);
    const HostTensor values = whole_values({40}, DType::f32, "x");
    const Tensor there = other->upload(values);
    const Tensor here = bench->zeros({40}, DType::f32);
    bench->transfer(here, there);
    REQUIRE(bench->download(here) == values);
    bench->transfer_combine(here, bench->upload(values), Reduction::sum);
    bench->transfer_scale(here, 0.5);
    REQUIRE(bench->download(here) == values);
    const Tensor nothing = bench->empty({0}, DType::f32);
    bench->transfer(nothing, nothing);
    bench->transfer_combine(nothing, nothing, Reduction::sum);
    bench->transfer_scale(nothing, 2);
    REQUIRE(bench.monitor.operations.size() ==
            1);  // only that of zeros(): transfers are not reported
}

}  // namespace lockstep::test
