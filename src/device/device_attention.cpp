#include <fmt/format.h>

#include "src/device/check.hpp"
#include "src/device/device.hpp"

namespace lockstep {

namespace {

void check_heads(const Check& check, const char* name, const Heads& heads) {
    check.real(name, heads.tensor);
    const Shape& shape = heads.tensor.shape();
    check.that(shape.dimensions() == 3, [&] {
        return fmt::format("{} has shape {}; (sequence, batches, columns) is expected",
                           name, shape.text());
    });
    check.that(heads.heads > 0 && heads.width > 0 && heads.first >= 0 &&
                   heads.first + heads.heads * heads.width <= heads.columns(),
               [&] {
                   return fmt::format(
                       "{} heads of width {} from column {} of {}, which has "
                       "{}",
                       heads.heads, heads.width, heads.first, name, heads.columns());
               });
}

/// As many batches, heads and columns a head, of one type.
void check_alike(const Check& check, const char* name, const Heads& heads,
                 const char* other_name, const Heads& other) {
    check.dtype(name, heads.tensor, other.tensor.dtype());
    check.that(
        heads.batches() == other.batches() && heads.heads == other.heads &&
            heads.width == other.width,
        [&] {
            return fmt::format(
                "{} has {} batches of {} heads of width {}, but {} has {} of {} of "
                "width {}",
                name, heads.batches(), heads.heads, heads.width, other_name,
                other.batches(), other.heads, other.width);
        });
}

/// Weights (batches, heads, m, n), of which m rows and n columns belong to `rows` and
/// `columns` elements of the sequence.
void check_weights(const Check& check, const Tensor& weights, const Heads& heads,
                   std::int64_t rows, std::int64_t columns) {
    check.dtype("weights", weights, heads.tensor.dtype());
    const Shape expected{heads.batches(), heads.heads, rows, columns};
    check.that(weights.shape() == expected, [&] {
        return fmt::format("weights have shape {}; {} is expected",
                           weights.shape().text(), expected.text());
    });
}

/// What is read and written of a view's columns.
std::int64_t bytes_of_view(const Heads& heads) {
    return heads.rows() * heads.batches() * heads.heads * heads.width *
           bytes_of(heads.tensor.dtype());
}

}  // namespace

Tensor Device::head_products(const Heads& x, const Heads& y, double factor,
                             SourceLine at) {
    const Check check(*this, "head_products", at);
    check_heads(check, "x", x);
    check_heads(check, "y", y);
    check_alike(check, "y", y, "x", x);
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
    const std::int64_t rows = weights.shape()[2];
    check_weights(check, weights, y, rows, y.rows());
    Tensor sums = empty({rows, y.batches(), y.heads * y.width}, weights.dtype(), at);
    const Heads destination{sums, y.heads, y.width, 0};
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
    check_alike(check, "destination", destination, "y", y);
    if (options.transpose)
        check_weights(check, weights, y, y.rows(), destination.rows());
    else
        check_weights(check, weights, y, destination.rows(), y.rows());
    check.apart("destination", destination.tensor, "weights", weights);
    check.apart("destination", destination.tensor, "y", y.tensor);
    run({"add_head_sums", at, 2 * weights.elements() * y.width,
         weights.bytes() + bytes_of_view(y) + 2 * bytes_of_view(destination),
         Derivation::adding(Derivation::linear_in(0, 1), options.factor)},
        {&weights, &y.tensor, &destination.tensor}, {&destination.tensor},
        [&] { do_head_sums(destination, weights, y, options, /*accumulate=*/true); });
}

}  // namespace lockstep
