#pragma once

#include <cmath>
#include <cstdint>
#include <limits>

#include "src/device/options.hpp"

namespace lockstep::formulas {

// Each function computes one element of an operation, on every backend. `Real` is float
// or double, or, in the simulator, a fixed-size Eigen array of either. The compiler finds
// an array's functions through its namespace, except those whose name ends in _of.
// constexpr makes nvcc (--expt-relaxed-constexpr) compile all this for the device
// unchanged.

/// The number type of `Real`: `Real` itself, or the type of an array's elements.
template <typename Real>
struct NumberOf {
    using type = Real;
};
template <typename Real>
requires requires {
    typename Real::Scalar;
}
struct NumberOf<Real> {
    using type = typename Real::Scalar;
};
template <typename Real>
using Number = typename NumberOf<Real>::type;

/// exp(x), erf(x), sqrt(x) and a * b + c, which a backend may specialize for its own
/// Real.
template <typename Real>
constexpr Real exp_of(const Real& x) {
    using std::exp;
    return exp(x);
}
template <typename Real>
constexpr Real erf_of(const Real& x) {
    using std::erf;
    return erf(x);
}
template <typename Real>
constexpr Real sqrt_of(const Real& x) {
    using std::sqrt;
    return sqrt(x);
}
template <typename Real>
constexpr Real fused_of(const Real& a, const Real& b, Number<Real> c) {
    return a * b + c;
}

template <typename N>
inline constexpr N kInverseSqrt2 = static_cast<N>(0.70710678118654752440);
template <typename N>
inline constexpr N kInverseSqrt2Pi = static_cast<N>(0.39894228040143267794);

/// If earlier columns span a column, removing their directions leaves at most this
/// fraction of the column's length, because of rounding.
template <typename N>
inline constexpr double kRounding = 64.0 * std::numeric_limits<N>::epsilon();

/// Returns the factor that gives a column length 1, or 0 if at most the fraction `least`
/// of its length is left. `before` and `after` are the squares of its length before and
/// after the earlier columns' directions were removed. NaN stays NaN.
constexpr double unit_factor(double before, double after, double least) {
    using std::sqrt;
    return after <= least * least * before ? 0 : 1 / sqrt(after);
}

/// dx of y = tanh(x).
template <typename Real>
constexpr Real tanh_backward(const Real& y, const Real& dy) {
    return dy * (1 - y * y);
}

/// x Phi(x), with Phi the distribution function of the normal distribution (Hendrycks &
/// Gimpel, arXiv 1606.08415, section 2). Uses erf: exact, not the tanh approximation.
template <typename Real>
constexpr Real gelu(const Real& x) {
    return Number<Real>(0.5) * x * (1 + erf_of<Real>(kInverseSqrt2<Number<Real>> * x));
}

/// dx of y = gelu(x): dy (Phi(x) + x phi(x)).
template <typename Real>
constexpr Real gelu_backward(const Real& x, const Real& dy) {
    using N = Number<Real>;
    const Real distribution = N(0.5) * (1 + erf_of<Real>(kInverseSqrt2<N> * x));
    const Real density = kInverseSqrt2Pi<N> * exp_of<Real>(N(-0.5) * x * x);
    return dy * (distribution + x * density);
}

/// This is added to the sums that rows are divided by, as in DeepSeek-V3's gate, so that
/// a row of zeros stays a row of zeros. It is negligible in sums of usual size.
template <typename N>
inline constexpr N kLeastSum = static_cast<N>(1e-20);

/// 1 / (1 + exp(-x)).
template <typename Real>
constexpr Real sigmoid(const Real& x) {
    using std::exp;
    return 1 / (1 + exp(-x));
}

/// dx of y = sigmoid(x).
template <typename Real>
constexpr Real sigmoid_backward(const Real& y, const Real& dy) {
    return dy * y * (1 - y);
}

template <typename N>
inline constexpr N kTwiceSqrt2OverPi = static_cast<N>(1.59576912160573071176);
template <typename N>
inline constexpr N kGeluCubic = static_cast<N>(0.044715);

/// x (1 + tanh(u)) / 2 with u = sqrt(2/pi) (x + 0.044715 x^3), the approximation of gelu
/// in its paper. (1 + tanh(u)) / 2 is sigmoid(2 u), which is exact in the left tail, too.
template <typename Real>
constexpr Real gelu_by_tanh(const Real& x) {
    using N = Number<Real>;
    constexpr N kCubic = kTwiceSqrt2OverPi<N> * kGeluCubic<N>;
    return x * sigmoid<Real>(x * fused_of<Real>(kCubic * x, x, kTwiceSqrt2OverPi<N>));
}

/// dx of y = gelu_by_tanh(x): dy sigma (1 + x (1 - sigma) 2 u').
template <typename Real>
constexpr Real gelu_by_tanh_backward(const Real& x, const Real& dy) {
    using N = Number<Real>;
    const Real cubic = kGeluCubic<N> * x * x;
    const Real sigma = sigmoid<Real>(kTwiceSqrt2OverPi<N> * (x + cubic * x));
    const Real slope = kTwiceSqrt2OverPi<N> * (1 + 3 * cubic);
    return dy * (sigma + x * sigma * (1 - sigma) * slope);
}

/// silu(gate) * rest, silu(g) = g sigmoid(g) (Shazeer, arXiv 2002.05202, section 2).
/// silu(g) is also the derivative with respect to `rest`.
template <typename Real>
constexpr Real swiglu(const Real& gate, const Real& rest) {
    return gate * sigmoid<Real>(gate) * rest;
}

/// The gate's derivative: dy rest sigma (1 + gate (1 - sigma)), sigma = sigmoid(gate).
template <typename Real>
constexpr Real swiglu_backward_gate(const Real& gate, const Real& rest, const Real& dy) {
    const Real sigma = sigmoid<Real>(gate);
    return dy * rest * sigma * (1 + gate * (1 - sigma));
}

/// The angle by which pair `pair` of a head's columns turns from one position to the next
/// (Su et al., arXiv 2104.09864, equation 15). In f64 for all types: the angles of late
/// tokens have too many digits for f32.
constexpr double rotary_frequency(std::int64_t pair, std::int64_t width, double base) {
    using std::pow;
    return pow(base, -2.0 * static_cast<double>(pair) / static_cast<double>(width));
}

/// Returns the factor that turns sums relative to the maximum `old` into sums relative to
/// `larger` (Milakov & Gimelshein, arXiv 1805.02867, algorithm 3). If `old` is -infinity,
/// the sums are 0 or NaN, and stay so.
template <typename N>
constexpr N rescaling(N old, N larger) {
    using std::exp;
    return old == larger ? N{1} : exp(old - larger);
}

/// Returns the number that is subtracted from a row's scores before exp, so that no exp
/// overflows. `maximum` is the scores' maximum, or the logarithm of the sum of their
/// exponentials. If it is -infinity, all scores are, too: returns 0, and each exp is 0.
template <typename N>
constexpr N taken_off(N maximum) {
    return maximum == -std::numeric_limits<N>::infinity() ? N{0} : maximum;
}

/// Returns the factor that scales gradients to a norm of at most `most`, from the sum of
/// their squares. NaN stays NaN.
template <typename N>
constexpr N clip_factor(N squares, N most) {
    using std::sqrt;
    const N factor = most / (sqrt(squares) + N(1e-6));
    return factor > 1 ? N{1} : factor;
}

/// One element of dropout; `number` was drawn from [0, 1).
template <typename N>
constexpr N dropout(N x, double number, double probability) {
    return number < probability ? N{0} : x * static_cast<N>(1 / (1 - probability));
}

/// The mean of n numbers, 1 / sqrt(variance + epsilon) and the unbiased variance, from
/// the numbers' sum and the sum of their squared distances from the mean. The mean of no
/// numbers and the unbiased variance of one number are 0 here.
template <typename N>
struct Moments {
    N mean, rstd, unbiased;

    constexpr Moments(N sum, N squares, N n, N epsilon)
        : mean(n > 0 ? sum / n : N{0}),
          rstd(1 / std::sqrt((n > 0 ? squares / n : N{0}) + epsilon)),
          unbiased(n > 1 ? squares / (n - 1) : N{0}) {}
};

/// Returns a running statistic after a batch of n rows whose own statistic is `now`. A
/// batch without rows does not change the statistic.
template <typename N>
constexpr N running_statistic(N before, N now, N momentum, N n) {
    return n > 0 ? before + momentum * (now - before) : before;
}

/// Returns whether value a of column i comes before value b of column j, if the largest
/// values come first. If a and b are equal, the lower column comes first. A NaN is larger
/// than all numbers, as in PyTorch.
template <typename N>
constexpr bool comes_first(N a, std::int64_t i, N b, std::int64_t j) {
    const bool larger = a > b || (a != a && b == b);
    const bool smaller = b > a || (b != b && a == a);
    return larger || (!smaller && i < j);
}

/// One step of SGD with momentum and weight decay, as in PyTorch; velocity is updated.
template <typename Real, typename N = Number<Real>>
constexpr Real sgd_with_momentum(const Real& parameter, const Real& gradient,
                                 Real& velocity, N learning_rate, N momentum,
                                 N weight_decay) {
    velocity = momentum * velocity + (gradient + weight_decay * parameter);
    return parameter - learning_rate * velocity;
}

template <typename Real, typename N = Number<Real>>
constexpr Real sgd(const Real& parameter, const Real& gradient, N learning_rate,
                   N weight_decay) {
    return parameter - learning_rate * (gradient + weight_decay * parameter);
}

/// The factors of one step of AdamW, computed once, in double.
template <typename N>
struct AdamWStep {
    N beta1, rest1;  ///< rest = 1 - beta
    N beta2, rest2;
    N decay;       ///< 1 - learning rate * weight decay
    N rate;        ///< learning rate / (1 - beta1^step)
    N correction;  ///< 1 / sqrt(1 - beta2^step)
    N epsilon;

    AdamWStep(const AdamWOptions& options, std::int64_t step)
        : beta1(static_cast<N>(options.beta1)),
          rest1(static_cast<N>(1 - options.beta1)),
          beta2(static_cast<N>(options.beta2)),
          rest2(static_cast<N>(1 - options.beta2)),
          decay(static_cast<N>(1 - options.learning_rate * options.weight_decay)),
          rate(static_cast<N>(options.learning_rate / unbiased(options.beta1, step))),
          correction(static_cast<N>(1 / std::sqrt(unbiased(options.beta2, step)))),
          epsilon(static_cast<N>(options.epsilon)) {}

  private:
    static double unbiased(double beta, std::int64_t step) {
        return 1 - std::pow(beta, static_cast<double>(step));
    }
};

/// One step of AdamW (Loshchilov & Hutter, arXiv 1711.05101, algorithm 2); both moments
/// are updated. Differs: as in PyTorch, weight decay is scaled by the learning rate.
template <typename Real, typename N = Number<Real>>
constexpr Real adamw(const Real& parameter, const Real& gradient, Real& first_moment,
                     Real& second_moment, const AdamWStep<N>& step) {
    first_moment = step.beta1 * first_moment + step.rest1 * gradient;
    second_moment = step.beta2 * second_moment + step.rest2 * gradient * gradient;
    const Real deviation = step.correction * sqrt_of(second_moment) + step.epsilon;
    return step.decay * parameter - step.rate * first_moment / deviation;
}

}  // namespace lockstep::formulas
