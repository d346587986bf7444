#pragma once

#include <cmath>
#include <cstdint>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/device/device.hpp"
#include "tests/catch.hpp"
#include "tests/device/plain_monitor.hpp"

namespace lockstep::test {

/// The tags of a contract's tests, and a device of the tested backend. A program that
/// includes a contract must define both.
extern const char* const kTags;
std::unique_ptr<Device> make_device(int index, DeviceMonitor& monitor);
/// True if the backend adds up products of bf16 matrices in the same order as those of
/// f32. A program that includes tests/device/bf16_contract.hpp must define this constant.
extern const bool kProductsOfBf16InOrder;

/// One device and its monitor.
struct Bench {
    explicit Bench(bool numbers = true) : monitor(numbers) {}

    Device* operator->() const { return device.get(); }

    PlainMonitor monitor;
    std::unique_ptr<Device> device = make_device(0, monitor);
};

/// Returns the epsilon of the type in which results of this type are computed.
inline double epsilon_of(DType dtype) {
    return computed_in(dtype) == DType::f32
               ? double{std::numeric_limits<float>::epsilon()}
               : std::numeric_limits<double>::epsilon();
}

/// Returns the smallest normal number; a backend may treat smaller numbers as zero.
inline double least_of(DType dtype) {
    return computed_in(dtype) == DType::f32 ? double{std::numeric_limits<float>::min()}
                                            : std::numeric_limits<double>::min();
}

/// Returns uniform values in [low, high); the same name gives the same values.
inline HostTensor random_values(Shape shape, DType dtype, const std::string& name,
                                double low = -1, double high = 1) {
    HostTensor values(shape, dtype);
    const RandomStream stream(20, name);
    for (std::int64_t i = 0; i < values.elements(); ++i)
        values.set(i, low + (high - low) * stream.uniform(static_cast<std::uint64_t>(i)));
    return values;
}

/// Indices in [0, bound).
inline HostTensor random_indices(Shape shape, std::int64_t bound,
                                 const std::string& name) {
    return random_values(shape, DType::i32, name, 0, static_cast<double>(bound));
}

/// The expected results of an operation, in f64, with error bounds. A sum of K terms in
/// random order has an error of about sqrt(K) epsilon times its size; the bound is 4
/// times this error. A bf16 result is rounded once more.
class Expected {
  public:
    Expected(Shape shape, DType dtype) : shape_(shape), dtype_(dtype) {}

    /// Adds the next value, with the error of `roundings` roundings of the number `size`.
    void add(double value, double size, double roundings = 1) {
        values_.push_back(value);
        const double bound =
            4 * epsilon_of(dtype_) * std::sqrt(roundings) * size + 8 * least_of(dtype_);
        bounds_.push_back(dtype_ != DType::bf16
                              ? bound
                              : bound + Bf16::kEpsilon / 2 * (std::abs(value) + bound));
    }
    void add(double value) { add(value, std::abs(value)); }

    void check(const HostTensor& got) const {
        REQUIRE(got.shape() == shape_);
        REQUIRE(got.dtype() == dtype_);
        REQUIRE(static_cast<std::int64_t>(values_.size()) == got.elements());
        for (std::int64_t i = 0; i < got.elements(); ++i) {
            const double value = values_[static_cast<std::size_t>(i)];
            const double bound = bounds_[static_cast<std::size_t>(i)];
            // Infinities must be equal.
            const double off = got.at(i) == value ? 0 : std::abs(got.at(i) - value);
            if (!(off <= bound))
                FAIL(fmt::format(
                    "element {} of {} {} is {}, not {}: off by {}, allowed {}", i,
                    shape_.text(), name_of(dtype_), got.at(i), value, off, bound));
        }
        SUCCEED();
    }

  private:
    Shape shape_;
    DType dtype_;
    std::vector<double> values_;
    std::vector<double> bounds_;
};

/// A sum, with the sum of the squares of its terms.
struct Sum {
    double value = 0;
    double squares = 0;
    std::int64_t count = 0;

    void add(double term) {
        value += term;
        squares += term * term;
        ++count;
    }
    /// Adds the sum, multiplied by `factor`, to `expected`.
    void expect(Expected& expected, double factor = 1) const {
        expected.add(factor * value,
                     std::abs(factor) * std::sqrt(squares) + std::abs(value),
                     static_cast<double>(count));
    }
};

/// Checks that `call` throws a UsageError with `sentence` and a file of tests/device.
template <typename Call>
void refuses(const std::string& sentence, Call&& call) {
    try {
        call();
    } catch (const UsageError& error) {
        const std::string what = error.what();
        CAPTURE(what, sentence);
        REQUIRE(what.find(sentence) != std::string::npos);
        REQUIRE(what.find("tests/device/") != std::string::npos);
        return;
    }
    FAIL("nothing was thrown, but expected: " + sentence);
}

}  // namespace lockstep::test
