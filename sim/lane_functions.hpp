#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>

#include "sim/lanes.hpp"
#include "src/device/formulas.hpp"

// Eigen's erf for vectors of f32.
#include <unsupported/Eigen/SpecialFunctions>

namespace lockstep::sim {

// The largest errors of these functions, in units of the last place: exp 2, tanh 6 and
// erf 7 in f32; exp 2, tanh 3 and erf 2 in f64 (tests/sim/test_lanes.cpp).

/// Returns exp(x), and 0 if x is kBelow or less: Eigen's exp(-inf) of a vector is not 0.
/// A NaN stays NaN, since Eigen's max and min then return their left side.
template <typename T>
Lane<T> exp_lane(const Lane<T>& x) {
    constexpr bool kSingle = sizeof(T) == sizeof(float);
    constexpr T kBelow = kSingle ? T(-87) : T(-708);  // subnormal results are slow
    // kSteep times the smallest step above kBelow is more than 1.
    constexpr T kSteep = kSingle ? T(1e6) : T(1e14);
    const Lane<T> above = ((x - kBelow) * kSteep).max(T(0)).min(T(1));  // 0 or 1
    return x.max(kBelow).exp() * above;
}

/// Returns sqrt(x), correctly rounded. Eigen's square root of a vector of f32 begins with
/// an estimate whose last bits differ between processors of Intel and AMD.
template <typename T>
Lane<T> sqrt_lane(const Lane<T>& x) {
    Lane<T> y;
    for (Eigen::Index i = 0; i < kLane; ++i)
        y[i] = std::sqrt(x[i]);
    return y;
}

/// Returns a * b + c, rounded once if the processor has an instruction for that.
template <typename T>
Lane<T> fused(const Lane<T>& a, const Lane<T>& b, T c) {
    using namespace Eigen::internal;
    using Packet = typename packet_traits<T>::type;
    Lane<T> y;
    for (Eigen::Index i = 0; i < kLane; i += packet_traits<T>::size)
        pstoreu(y.data() + i, pmadd(ploadu<Packet>(a.data() + i),
                                    ploadu<Packet>(b.data() + i), pset1<Packet>(c)));
    return y;
}

/// c[0] + c[1] x + c[2] x^2 + …
template <std::size_t Terms>
Lane<double> polynomial(const Lane<double>& x, const std::array<double, Terms>& c) {
    Lane<double> sum = Lane<double>::Constant(c.back());
    for (std::size_t i = Terms - 1; i-- > 0;)
        sum = fused<double>(sum, x, c[i]);
    return sum;
}

/// Returns an odd function of x. Its value at |x| is `near` if |x| < from, and `far`
/// otherwise, even if x is a NaN. Works on bits, two numbers at a time, because Eigen and
/// compilers would select one number at a time.
inline Lane<double> odd(const Lane<double>& x, double from, const Lane<double>& near,
                        const Lane<double>& far) {
    constexpr std::int64_t kWidth = 2;  // every processor has vectors of two
    using Numbers [[gnu::vector_size(kWidth * sizeof(double))]] = double;
    using Bits [[gnu::vector_size(kWidth * sizeof(double))]] = std::int64_t;
    constexpr std::int64_t kSign = std::numeric_limits<std::int64_t>::min();
    Lane<double> y;
    for (std::int64_t i = 0; i < kLane; i += kWidth) {
        Bits all, below, above;
        Numbers size;
        std::memcpy(&all, x.data() + i, sizeof all);
        std::memcpy(&below, near.data() + i, sizeof below);
        std::memcpy(&above, far.data() + i, sizeof above);
        const Bits positive = all & ~kSign;
        std::memcpy(&size, &positive, sizeof size);
        all = (all & kSign) | ((size < from ? below : above) & ~kSign);
        std::memcpy(y.data() + i, &all, sizeof all);
    }
    return y;
}

/// tanh(x), by Eigen, which has a version for vectors of f32.
template <typename T>
Lane<T> tanh_lane(const Lane<T>& x) {
    return x.tanh();
}

/// Returns tanh in f64. If |x| < 0.5, it is |x| + |x|^3 times a polynomial in x^2, the
/// best of its degree. Else it is (1 - e) / (1 + e), e = exp(-2 |x|).
template <>
inline Lane<double> tanh_lane(const Lane<double>& x) {
    static constexpr std::array kTerms{-0.3333333333333333,     0.13333333333329825,
                                       -0.05396825396361009,    0.021869488297234514,
                                       -0.008863229270067843,   0.0035920334653723926,
                                       -0.001454959384380466,   0.0005849653729022644,
                                       -0.00022107222975864633, 5.946956589774769e-05};
    const Lane<double> size = x.abs();
    const Lane<double> square = size * size;
    const Lane<double> near = size + size * (square * polynomial(square, kTerms));
    const Lane<double> e = exp_lane<double>(-2 * size);
    return odd(x, 0.5, near, (1 - e) / (1 + e));
}

/// erf(x), by Eigen, which has a version for vectors of f32.
template <typename T>
Lane<T> erf_lane(const Lane<T>& x) {
    return x.erf();
}

/// Returns erf in f64. If |x| < 1, it is |x| times a polynomial in x^2. Else it is
/// 1 - exp(-x^2) times a polynomial in (|x| - 2) / (|x| + 2), which is between -1/3 and
/// 1/2 if |x| <= 6. From 6 on, erf is 1.
template <>
inline Lane<double> erf_lane(const Lane<double>& x) {
    static constexpr std::array kNear{
        1.1283791670955126,      -0.3761263890318375,     0.11283791670954879,
        -0.026866170645076792,   0.0052239776248180145,   -0.000854832698083379,
        0.0001205533111164271,   -1.4925595266831182e-05, 1.6461000484121368e-06,
        -1.6350312701054695e-07, 1.4659775274047436e-08,  -1.1372848856791674e-09,
        5.957176147748911e-11};
    static constexpr std::array kFar{
        0.25539567631050575,     -0.4271858474139579,    0.24165819424246987,
        -0.07897858101585253,    0.00373289240349224,    0.006997461747753573,
        -0.0008471431980760424,  -0.0009819773208131022, 4.3554202452705896e-05,
        0.00017436697232946864,  2.754312818566672e-05,  -2.7647305443610053e-05,
        -1.4067532694582058e-05, 1.820143195975009e-06,  3.917059299925389e-06};
    const Lane<double> size = x.abs();
    const Lane<double> near = size * polynomial(size * size, kNear);
    const Lane<double> most = size.min(6.0);  // a NaN stays NaN
    const Lane<double> far =
        1 - exp_lane<double>(-most * most) * polynomial((most - 2) / (most + 2), kFar);
    return odd(x, 1, near, far);
}

}  // namespace lockstep::sim

namespace lockstep::formulas {

// For lanes, the formulas of src/device/formulas.hpp use the functions above.

template <>
inline sim::Lane<float> exp_of(const sim::Lane<float>& x) {
    return sim::exp_lane<float>(x);
}
template <>
inline sim::Lane<double> exp_of(const sim::Lane<double>& x) {
    return sim::exp_lane<double>(x);
}
template <>
inline sim::Lane<double> erf_of(const sim::Lane<double>& x) {
    return sim::erf_lane<double>(x);
}
template <>
inline sim::Lane<float> sqrt_of(const sim::Lane<float>& x) {
    return sim::sqrt_lane<float>(x);
}
template <>
inline sim::Lane<float> fused_of(const sim::Lane<float>& a, const sim::Lane<float>& b,
                                 float c) {
    return sim::fused<float>(a, b, c);
}
template <>
inline sim::Lane<double> fused_of(const sim::Lane<double>& a, const sim::Lane<double>& b,
                                  double c) {
    return sim::fused<double>(a, b, c);
}

}  // namespace lockstep::formulas
