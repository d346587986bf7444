#include <algorithm>

#include <fmt/format.h>

#include "src/device/check_heads.hpp"

namespace lockstep {

namespace {

/// Weights (batches, heads, m, n), of which m rows and n columns belong to `rows` and
/// `columns` elements of the sequence.
void check_weights(const Check& check, const Tensor& weights, const Heads& y,
                   std::int64_t heads, std::int64_t rows, std::int64_t columns) {
    check.dtype("weights", weights, y.tensor.dtype());
    const Shape expected{y.batches(), heads, rows, columns};
    check.that(weights.shape() == expected, [&] {
        return fmt::format("weights have shape {}; {} is expected",
                           weights.shape().text(), expected.text());
    });
}

}  // namespace

Tensor Device::head_products(const Heads& x, const Heads& y, double factor,
                             SourceLine at) {
    const Check check(*this, "head_products", at);
    check_heads(check, "x", x);
    check_heads(check, "y", y);
    check_grouped(check, "y", y, "x", x);
    Tensor products =
        empty({x.batches(), x.heads, x.rows(), y.rows()}, x.tensor.dtype(), at);
    run({"head_products", at, 2 * products.elements() * x.width,
         bytes_of_view(x) + bytes_of_view(y) + products.bytes(),
         Derivation::linear_in(0, 1)},
        {&x.tensor, &y.tensor}, {&products},
        [&] { do_head_products(products, x, y, factor); });
    return products;
}

Tensor Device::head_sums(const Tensor& weights, const Heads& y, SourceLine at) {
    const Check check(*this, "head_sums", at);
    check_heads(check, "y", y);
    check.that(weights.shape().dimensions() == 4, [&] {
        return fmt::format(
            "weights have shape {}; (batches, heads, queries, keys) is "
            "expected",
            weights.shape().text());
    });
    const std::int64_t heads = weights.shape()[1], rows = weights.shape()[2];
    check_group(check, "y", y.heads, "weights", heads);
    check_weights(check, weights, y, heads, rows, y.rows());
    Tensor sums = empty({rows, y.batches(), heads * y.width}, weights.dtype(), at);
    const Heads destination{sums, heads, y.width, 0};
    run(
        {"head_sums", at, 2 * weights.elements() * y.width,
         weights.bytes() + bytes_of_view(y) + sums.bytes(), Derivation::linear_in(0, 1)},
        {&weights, &y.tensor}, {&sums},
        [&] { do_head_sums(destination, weights, y, {}, /*accumulate=*/false); },
        [&] {
            if (sums.elements() > 0) do_fill(sums, 0);
        });
    return sums;
}

void Device::add_head_sums(const Heads& destination, const Tensor& weights,
                           const Heads& y, HeadSumOptions options, SourceLine at) {
    const Check check(*this, "add_head_sums", at);
    check_heads(check, "y", y);
    check_heads(check, "destination", destination);
    if (destination.heads < y.heads)
        check_grouped(check, "destination", destination, "y", y);
    else
        check_grouped(check, "y", y, "destination", destination);
    const std::int64_t heads = std::max(destination.heads, y.heads);
    if (options.transpose)
        check_weights(check, weights, y, heads, y.rows(), destination.rows());
    else
        check_weights(check, weights, y, heads, destination.rows(), y.rows());
    check.apart("destination", destination.tensor, "weights", weights);
    check.apart("destination", destination.tensor, "y", y.tensor);
    run({"add_head_sums", at, 2 * weights.elements() * y.width,
         weights.bytes() + bytes_of_view(y) + 2 * bytes_of_view(destination),
         Derivation::adding(Derivation::linear_in(0, 1), options.factor)},
        {&weights, &y.tensor, &destination.tensor}, {&destination.tensor},
        [&] { do_head_sums(destination, weights, y, options, /*accumulate=*/true); });
}

}  // namespace lockstep
