#pragma once

#include <algorithm>

#include "tests/device/support.hpp"

namespace lockstep::test {

/// Checks the softmax of x (…, m, n) over the keys that each query sees, by its
/// definition. The other elements are first made NaN and infinite; they must not be read.
inline void check_causal_softmax(Bench& bench, HostTensor x,
                                 const SoftmaxOptions& options) {
    const Shape& shape = x.shape();
    const std::int64_t columns = shape.columns();
    const std::int64_t queries = shape[shape.dimensions() - 2];
    Expected expected(shape, x.dtype());
    for (std::int64_t row = 0; row < shape.matrix_rows(); ++row) {
        const auto sees = [&](std::int64_t key) {
            return options.keys[key] <= options.queries[row % queries];
        };
        double sum = 0;
        for (std::int64_t j = 0; j < columns; ++j)
            if (sees(j)) sum += std::exp(x.at(row * columns + j));
        for (std::int64_t j = 0; j < columns; ++j) {
            const double p = sees(j) ? std::exp(x.at(row * columns + j)) / sum : 0;
            expected.add(p, 20 * p, static_cast<double>(columns));
            if (!sees(j)) x.set(row * columns + j, j % 2 == 0 ? NAN : INFINITY);
        }
    }
    const HostTensor y = bench->download(bench->softmax(bench->upload(x), options));
    expected.check(y);
    for (std::int64_t i = 0; i < y.elements(); ++i)
        if (!std::isfinite(x.at(i))) REQUIRE(y.at(i) == 0);
}

TEST_CASE(
    "A causal softmax is a softmax over the keys that a query sees, and zero elsewhere",
    kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape =
        GENERATE(Shape{1, 1}, Shape{7, 7}, Shape{9, 4}, Shape{3, 20}, Shape{16, 16},
                 Shape{2, 3, 5, 5}, Shape{2, 33, 33}, Shape{2, 100, 100}, Shape{0, 4, 4});
    CAPTURE(shape.text());
    Bench bench;
    check_causal_softmax(bench, random_values(shape, dtype, "x", -9, 9), {true});
}

TEST_CASE("A causal softmax compares tokens, in any order of sharding", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const TokenOrder order =
        GENERATE(TokenOrder::contiguous, TokenOrder::striped, TokenOrder::zigzag);
    const TokenRows tokens{order, 3, 22, 0};
    CAPTURE(name_of(order));
    Bench bench;
    for (std::int64_t rank = 0; rank < tokens.ranks; ++rank) {
        CAPTURE(rank);
        const TokenRows own = tokens.of_rank(rank);
        // First with all ranks' keys, then with one rank's keys at a time.
        check_causal_softmax(bench, random_values({2, 22, 66}, dtype, "all", -9, 9),
                             {true, own, tokens});
        for (std::int64_t other = 0; other < tokens.ranks; ++other)
            check_causal_softmax(bench, random_values({22, 22}, dtype, "one", -9, 9),
                                 {true, own, tokens.of_rank(other)});
    }
    // Rows cross from one rank's share to the next, and keys are in another order.
    TokenRows part = tokens;
    part.first = 17;
    check_causal_softmax(bench, random_values({40, 20}, dtype, "part", -9, 9),
                         {true, part, {TokenOrder::contiguous, 1, 0, 13}});
}

TEST_CASE("A row that sees no key is zero in a causal softmax", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t columns = GENERATE(1, 20, 130);
    Bench bench;
    HostTensor x({3, columns}, dtype);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, i % 2 == 0 ? NAN : -INFINITY);
    SoftmaxOptions options{true};
    options.keys.first = 3;
    REQUIRE(bench->download(bench->softmax(bench->upload(x), options)) ==
            HostTensor(x.shape(), dtype));
}

TEST_CASE("A query that sees only NaN gives NaN, and zeros for the other keys", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const double bad = GENERATE(NAN, -INFINITY);
    Bench bench;
    HostTensor x = random_values({20, 20}, dtype, "x");
    for (std::int64_t i = 0; i < 20; ++i)
        x.set(11 * 20 + i, bad);
    const HostTensor y = bench->download(bench->softmax(bench->upload(x), {true}));
    for (std::int64_t j = 0; j < 20; ++j) {
        REQUIRE(std::isnan(y.at(11 * 20 + j)) == (j <= 11));
        REQUIRE_FALSE(std::isnan(y.at(12 * 20 + j)));
        if (j > 11) REQUIRE(y.at(11 * 20 + j) == 0);
    }
}

}  // namespace lockstep::test
