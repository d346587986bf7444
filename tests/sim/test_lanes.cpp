#include <cmath>
#include <limits>

#include "sim/lane_functions.hpp"
#include "tests/catch.hpp"

// Measures the errors of the functions on lanes, in units of the last place.

namespace lockstep::test {

namespace {

using sim::kLane;
using sim::Lane;

/// Returns the error of `got` in units of the last place. A unit is the distance from the
/// right number, rounded to T, to the next larger T.
template <typename T>
double units_off(T got, long double right) {
    const T nearest = std::fabs(static_cast<T>(right));
    const T step = std::nextafter(nearest, std::numeric_limits<T>::infinity()) - nearest;
    return static_cast<double>(std::fabs((static_cast<long double>(got) - right) / step));
}

/// Returns the largest error at evenly spread numbers of (low, high).
template <typename T>
double most_off(T low, T high, Lane<T> (*function)(const Lane<T>&),
                long double (*right)(long double)) {
    constexpr int kNumbers = 1 << 16;
    double most = 0;
    for (int i = 0; i < kNumbers; i += static_cast<int>(kLane)) {
        Lane<T> x;
        for (int j = 0; j < static_cast<int>(kLane); ++j)
            x[j] = low + (high - low) * (static_cast<T>(i + j) + T(0.5)) / kNumbers;
        const Lane<T> y = function(x);
        for (int j = 0; j < static_cast<int>(kLane); ++j)
            most = std::max(most, units_off<T>(y[j], right(x[j])));
    }
    return most;
}

/// The largest error allowed for each function, in units of the last place.
struct Bounds {
    double exp, tanh, erf;
};

template <typename T>
void check_functions(T least_exponent, T most_exponent, const Bounds& bounds) {
    CHECK(most_off<T>(least_exponent, most_exponent, sim::exp_lane<T>, std::exp) <=
          bounds.exp);
    for (const T reach : {T(1e-6), T(1), T(10)}) {
        CHECK(most_off<T>(-reach, reach, sim::tanh_lane<T>, std::tanh) <= bounds.tanh);
        CHECK(most_off<T>(-reach, reach, sim::erf_lane<T>, std::erf) <= bounds.erf);
    }
}

}  // namespace

TEST_CASE("Exponentials, tanh and erf are off by a few units of the last place") {
    check_functions<float>(-86, 88, {.exp = 2, .tanh = 6, .erf = 7});
    check_functions<double>(-700, 709, {.exp = 2, .tanh = 3, .erf = 2});
}

TEST_CASE("A square root is rounded correctly, as on any processor") {
    constexpr int kNumbers = 1 << 16;
    for (int i = 0; i < kNumbers; i += static_cast<int>(kLane)) {
        Lane<float> x;
        for (int j = 0; j < static_cast<int>(kLane); ++j)
            x[j] = std::ldexp(1.0F + static_cast<float>(i + j) / kNumbers, j - 8);
        const Lane<float> y = formulas::sqrt_of(x);
        for (int j = 0; j < static_cast<int>(kLane); ++j)
            REQUIRE(y[j] == std::sqrt(x[j]));
    }
}

TEST_CASE("The exponential of a number far below zero is 0, and of a NaN is NaN") {
    for (const double far : {-88.0, -1000.0, -1e30}) {
        CHECK((sim::exp_lane<float>(Lane<float>::Constant(static_cast<float>(far))) == 0)
                  .all());
        CHECK((sim::exp_lane<double>(Lane<double>::Constant(10 * far)) == 0).all());
    }
    constexpr float kInfinity = std::numeric_limits<float>::infinity();
    CHECK((sim::exp_lane<float>(Lane<float>::Constant(-kInfinity)) == 0).all());
    CHECK(sim::exp_lane<float>(Lane<float>::Constant(std::nanf(""))).isNaN().all());
    CHECK((sim::exp_lane<float>(Lane<float>::Constant(0)) == 1).all());
}

TEST_CASE("tanh and erf keep zero's sign, end at 1 and pass on a NaN") {
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    for (Lane<double> (*const function)(const Lane<double>&) :
         {sim::tanh_lane<double>, sim::erf_lane<double>})
        for (const double sign : {1.0, -1.0}) {
            Lane<double> x = Lane<double>::Zero();
            x.head<4>() << 0, 30, kInfinity, std::nan("");
            const Lane<double> y = function(sign * x);
            CHECK(y[0] == 0);
            CHECK(std::signbit(y[0]) == std::signbit(sign * x[0]));
            CHECK(y[1] == sign);
            CHECK(y[2] == sign);
            CHECK(std::isnan(y[3]));
        }
}

TEST_CASE("Formulas of lanes use the lanes' own functions") {
    Lane<double> x;
    for (Eigen::Index i = 0; i < x.size(); ++i)
        x[i] = 0.37 * static_cast<double>(i - 7);
    CHECK((formulas::erf_of(x) == sim::erf_lane<double>(x)).all());
    CHECK((formulas::exp_of(x) == sim::exp_lane<double>(x)).all());
    // For very large x the density must be 0: x times the smallest number would not be 0.
    const Lane<double> far = Lane<double>::Constant(1e308);
    CHECK((formulas::gelu_backward<Lane<double>>(far, Lane<double>::Ones()) == 1).all());
    const Lane<float> far_too = Lane<float>::Constant(3e38F);
    CHECK(
        (formulas::gelu_backward<Lane<float>>(far_too, Lane<float>::Ones()) == 1).all());
}

}  // namespace lockstep::test
