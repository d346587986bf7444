#include <fmt/format.h>

#include "src/device/check.hpp"
#include "src/device/device.hpp"

namespace lockstep {

namespace {

/// The extents of op(a) (m, k) times op(b) (k, n).
struct Extents {
    std::int64_t m, k, n;
};

constexpr std::int64_t kMostElements = std::int64_t{1} << 48;

Extents checked_extents(const Check& check, const Tensor& a, const Tensor& b,
                        const MatmulOptions& options) {
    check.real("a", a);
    check.dtype("b", b, a.dtype());
    const Shape& left = a.shape();
    const Shape& right = b.shape();
    const std::int64_t m = options.transpose_a ? left.columns() : left.rows();
    const std::int64_t k = options.transpose_a ? left.rows() : left.columns();
    const std::int64_t b_rows = options.transpose_b ? right.columns() : right.rows();
    const std::int64_t n = options.transpose_b ? right.rows() : right.columns();
    check.that(k == b_rows, [&] {
        return fmt::format("a {}{} times b {}{}: the inner extents are {} and {}",
                           left.text(), options.transpose_a ? " transposed" : "",
                           right.text(), options.transpose_b ? " transposed" : "", k,
                           b_rows);
    });
    // Of vast extents and nothing between them.
    check.that(n == 0 || m <= kMostElements / n, [&] {
        return fmt::format("a {} times b {} has {} x {} elements, more than there can be",
                           left.text(), right.text(), m, n);
    });
    return {m, k, n};
}

}  // namespace

Tensor Device::matmul(const Tensor& a, const Tensor& b, MatmulOptions options,
                      SourceLine at) {
    const Check check(*this, "matmul", at);
    check.that(!options.accumulate, [] {
        return std::string("accumulate without a destination; use matmul_into");
    });
    const Extents extents = checked_extents(check, a, b, options);
    const bool keeps_shape = !options.transpose_a && a.shape().dimensions() > 0;
    const Shape shape =
        keeps_shape ? a.shape().with_last(extents.n) : Shape{extents.m, extents.n};
    Tensor destination = empty(shape, a.dtype(), at);
    matmul_into(destination, a, b, options, at);
    return destination;
}

void Device::matmul_into(const Tensor& destination, const Tensor& a, const Tensor& b,
                         MatmulOptions options, SourceLine at) {
    const Check check(*this, "matmul", at);
    const Extents extents = checked_extents(check, a, b, options);
    check.dtype("destination", destination, a.dtype());
    check.matrix("destination", destination, extents.m, extents.n);
    check.apart("destination", destination, "a", a);
    check.apart("destination", destination, "b", b);
    const auto numbers = [&] { do_matmul(destination, a, b, options); };
    const auto numbers_if_empty = [&] {
        // The sum of no products is zero.
        if (destination.elements() > 0 && !options.accumulate) do_fill(destination, 0);
    };
    Charge charge{"matmul", at, 2 * extents.m * extents.k * extents.n, Charge::kOperands,
                  Derivation::linear_in(0, 1)};
    charge.derivation.adds = options.accumulate;
    if (options.accumulate)
        run(charge, {&a, &b, &destination}, {&destination}, numbers, numbers_if_empty);
    else
        run(charge, {&a, &b}, {&destination}, numbers, numbers_if_empty);
}

void Device::add_bias(const Tensor& y, const Tensor& bias, SourceLine at) {
    const Check check(*this, "add_bias", at);
    check.real("y", y);
    check.row("bias", bias, y.shape().columns(), y.dtype());
    check.apart("y", y, "bias", bias);
    run({"add_bias", at, y.elements(), Charge::kOperands,
         Derivation::adding(Derivation::linear_in(1))},
        {&y, &bias}, {&y}, [&] { do_add_bias(y, bias); });
}

void Device::accumulate_rows(const Tensor& destination, const Tensor& x, SourceLine at) {
    const Check check(*this, "accumulate_rows", at);
    check.real("x", x);
    check.row("destination", destination, x.shape().columns(), x.dtype());
    check.apart("destination", destination, "x", x);
    run({"accumulate_rows", at, x.elements(), Charge::kOperands,
         Derivation::adding(Derivation::linear_in(1))},
        {&destination, &x}, {&destination}, [&] { do_accumulate_rows(destination, x); });
}

}  // namespace lockstep
