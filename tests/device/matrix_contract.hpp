#pragma once

#include <numeric>
#include <vector>

#include "tests/device/support.hpp"

namespace lockstep::test {

/// Returns op(a) (m, k) times op(b) (k, n), element by element; adds `before` if given.
inline Expected product(const HostTensor& a, const HostTensor& b,
                        const MatmulOptions& options,
                        const HostTensor* before = nullptr) {
    const auto at = [](const HostTensor& x, bool transposed, std::int64_t row,
                       std::int64_t column) {
        const std::int64_t columns = x.shape().columns();
        return x.at(transposed ? column * columns + row : row * columns + column);
    };
    const std::int64_t m =
        options.transpose_a ? a.shape().columns() : a.shape().matrix_rows();
    const std::int64_t k =
        options.transpose_a ? a.shape().matrix_rows() : a.shape().columns();
    const std::int64_t n =
        options.transpose_b ? b.shape().matrix_rows() : b.shape().columns();
    Expected expected({m, n}, a.dtype());
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
            Sum sum;
            if (before != nullptr) sum.add(before->at(i * n + j));
            for (std::int64_t p = 0; p < k; ++p)
                sum.add(at(a, options.transpose_a, i, p) *
                        at(b, options.transpose_b, p, j));
            sum.expect(expected);
        }
    }
    return expected;
}

TEST_CASE("A matrix product equals its definition, with any transposes and sums", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape extents = GENERATE(
        Shape{1, 1, 1}, Shape{2, 3, 4}, Shape{1, 7, 40}, Shape{40, 7, 1}, Shape{1, 50, 1},
        Shape{6, 7, 6}, Shape{7, 7, 6}, Shape{17, 1, 19}, Shape{33, 65, 31},
        Shape{3, 300, 5}, Shape{64, 128, 96}, Shape{5, 1000, 2});
    const std::int64_t m = extents[0], k = extents[1], n = extents[2];
    Bench bench;
    for (const bool transpose_a : {false, true}) {
        for (const bool transpose_b : {false, true}) {
            CAPTURE(m, k, n, transpose_a, transpose_b);
            MatmulOptions options{transpose_a, transpose_b, false};
            const HostTensor a =
                random_values(transpose_a ? Shape{k, m} : Shape{m, k}, dtype, "a");
            const HostTensor b =
                random_values(transpose_b ? Shape{n, k} : Shape{k, n}, dtype, "b");
            const Tensor da = bench->upload(a);
            const Tensor db = bench->upload(b);
            product(a, b, options).check(bench->download(bench->matmul(da, db, options)));

            const HostTensor c = random_values({m, n}, dtype, "c");
            const Tensor dc = bench->upload(c);
            options.accumulate = true;
            bench->matmul_into(dc, da, db, options);
            product(a, b, options, &c).check(bench->download(dc));
            options.accumulate = false;
            bench->matmul_into(dc, da, db, options);
            product(a, b, options).check(bench->download(dc));
        }
    }
}

TEST_CASE("A product of tensors takes leading dimensions as rows and keeps them", kTags) {
    Bench bench;
    const HostTensor x = random_values({2, 3, 4}, DType::f64, "x");
    const HostTensor w = random_values({5, 4}, DType::f64, "w");
    const Tensor y =
        bench->matmul(bench->upload(x), bench->upload(w), {.transpose_b = true});
    REQUIRE(y.shape() == Shape{2, 3, 5});
    product(x, w, {.transpose_b = true}).check(bench->download(y.reshaped({6, 5})));
    // The gradient of w: both operands become matrices of 6 rows.
    const Tensor dw = bench->matmul(y, bench->upload(x), {.transpose_a = true});
    REQUIRE(dw.shape() == Shape{5, 4});
}

TEST_CASE("A product works on views of rows", kTags) {
    Bench bench;
    const HostTensor a = random_values({20, 15}, DType::f32, "a");
    const HostTensor b = random_values({31, 21}, DType::f32, "b");
    const Tensor c = bench->zeros({12, 21}, DType::f32);
    bench->matmul_into(c.rows(2, 9), bench->upload(a).rows(3, 9),
                       bench->upload(b).rows(7, 15));
    const HostTensor got = bench->download(c);
    product(a.rows(3, 9), b.rows(7, 15), {}).check(got.rows(2, 9));
    REQUIRE(got.rows(0, 2) == HostTensor({2, 21}, DType::f32));
    REQUIRE(got.rows(11, 1) == HostTensor({1, 21}, DType::f32));
}

TEST_CASE("A product over no columns is zero, and a product without rows is empty",
          kTags) {
    Bench bench;
    const Tensor a = bench->empty({3, 0}, DType::f32);
    const Tensor b = bench->empty({0, 4}, DType::f32);
    REQUIRE(bench->download(bench->matmul(a, b)) == HostTensor({3, 4}, DType::f32));
    const HostTensor before = random_values({3, 4}, DType::f32, "c");
    const Tensor c = bench->upload(before);
    bench->matmul_into(c, a, b, {.accumulate = true});
    REQUIRE(bench->download(c) == before);
    REQUIRE(bench->download(bench->matmul(b, c.rows(0, 0).reshaped({4, 0}))).elements() ==
            0);
}

/// Returns lists of the groups' numbers of rows; some groups have no rows.
inline std::vector<std::vector<std::int64_t>> trial_groups() {
    return {{5}, {0}, {1, 2}, {3, 0, 4}, {0, 0, 7, 0}, {33, 1, 0, 64, 2, 0}};
}

TEST_CASE("Each group of rows is multiplied by its own matrix", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const bool transposed = GENERATE(false, true);
    const bool accumulates = GENERATE(false, true);
    const std::vector<std::int64_t> rows = GENERATE(from_range(trial_groups()));
    const auto groups = static_cast<std::int64_t>(rows.size());
    const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const std::int64_t k = 17, n = 9;
    Bench bench;
    const HostTensor a = random_values({all, k}, dtype, "a");
    const HostTensor b =
        random_values({groups * (transposed ? n : k), transposed ? k : n}, dtype, "b");
    const HostTensor before = random_values({all, n}, dtype, "before");
    const Tensor to = bench->upload(before);
    const MatmulOptions options{.transpose_b = transposed, .accumulate = accumulates};
    bench->grouped_matmul(to, bench->upload(a), bench->upload(b), rows, options);
    // Each group's product equals that of a call for only this group.
    const Tensor by_hand = bench->upload(before);
    for (std::int64_t group = 0, from = 0; group < groups; ++group) {
        const std::int64_t count = rows[static_cast<std::size_t>(group)];
        const std::int64_t block = transposed ? n : k;
        bench->matmul_into(by_hand.rows(from, count), bench->upload(a.rows(from, count)),
                           bench->upload(b.rows(group * block, block)), options);
        from += count;
    }
    REQUIRE(bench->download(to) == bench->download(by_hand));
}

TEST_CASE("Each group of rows makes its own matrix", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const bool accumulates = GENERATE(false, true);
    const std::vector<std::int64_t> rows = GENERATE(from_range(trial_groups()));
    const auto groups = static_cast<std::int64_t>(rows.size());
    const std::int64_t all = std::accumulate(rows.begin(), rows.end(), std::int64_t{0});
    const std::int64_t k = 17, n = 9;
    Bench bench;
    const HostTensor a = random_values({all, k}, dtype, "a");
    const HostTensor b = random_values({all, n}, dtype, "b");
    const HostTensor before = random_values({groups * k, n}, dtype, "before");
    const Tensor to = bench->upload(before);
    const MatmulOptions options{.transpose_a = true, .accumulate = accumulates};
    bench->grouped_matmul(to, bench->upload(a), bench->upload(b), rows, options);
    const Tensor by_hand = bench->upload(before);
    for (std::int64_t group = 0, from = 0; group < groups; ++group) {
        const std::int64_t count = rows[static_cast<std::size_t>(group)];
        bench->matmul_into(by_hand.rows(group * k, k), bench->upload(a.rows(from, count)),
                           bench->upload(b.rows(from, count)), options);
        from += count;
    }
    REQUIRE(bench->download(to) == bench->download(by_hand));
}

TEST_CASE(
    "Each row is scaled by its own factor; a factor's gradient is a product of rows",
    kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 1}, Shape{5, 3}, Shape{33, 67}, Shape{1000, 16},
                                 Shape{4, 8, 16}, Shape{0, 5}, Shape{5, 0});
    CAPTURE(shape.text());
    const std::int64_t rows = shape.matrix_rows(), columns = shape.columns();
    Bench bench;
    const HostTensor values = random_values(shape, dtype, "x");
    const HostTensor of_y = random_values(shape, dtype, "dy");
    const HostTensor factors = random_values({rows, 1}, dtype, "factors");
    const Tensor x = bench->upload(values);
    const Tensor d_factors = bench->empty({rows}, dtype);
    bench->fill(d_factors, 7);

    bench->row_products(d_factors, x, bench->upload(of_y));
    bench->scale_rows(x, bench->upload(factors));
    Expected products({rows}, dtype), scaled(shape, dtype);
    for (std::int64_t i = 0; i < rows; ++i) {
        Sum sum;
        for (std::int64_t j = 0; j < columns; ++j) {
            const std::int64_t place = i * columns + j;
            sum.add(values.at(place) * of_y.at(place));
            scaled.add(values.at(place) * factors.at(i));
        }
        sum.expect(products);
    }
    products.check(bench->download(d_factors));
    scaled.check(bench->download(x));
}

TEST_CASE("A bias is added to every row, and its gradient is the sum of the rows",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 1}, Shape{5, 3}, Shape{33, 67}, Shape{1000, 17},
                                 Shape{4, 8, 16}, Shape{0, 5}, Shape{5, 0});
    CAPTURE(shape.text());
    Bench bench;
    const HostTensor y = random_values(shape, dtype, "y");
    const HostTensor bias = random_values({shape.columns()}, dtype, "bias");
    const Tensor dy = bench->upload(y);
    const Tensor d_bias = bench->upload(bias);

    bench->accumulate_rows(d_bias, dy);
    Expected sums(bias.shape(), dtype);
    for (std::int64_t j = 0; j < shape.columns(); ++j) {
        Sum sum;
        sum.add(bias.at(j));
        for (std::int64_t i = 0; i < shape.matrix_rows(); ++i)
            sum.add(y.at(i * shape.columns() + j));
        sum.expect(sums);
    }
    sums.check(bench->download(d_bias));

    bench->add_bias(dy, bench->upload(bias));
    Expected added(shape, dtype);
    for (std::int64_t i = 0; i < y.elements(); ++i)
        added.add(y.at(i) + bias.at(i % shape.columns()), 1);
    added.check(bench->download(dy));
}

/// Returns the product of column i of one matrix and column j of another, in f64.
inline double column_product(const HostTensor& a, std::int64_t i, const HostTensor& b,
                             std::int64_t j) {
    double sum = 0;
    for (std::int64_t row = 0; row < a.shape().matrix_rows(); ++row)
        sum += a.at(row * a.shape().columns() + i) * b.at(row * b.shape().columns() + j);
    return sum;
}

/// Checks that each column of x times itself is 1, and that two columns multiply to 0.
/// Products with the columns `zeros` must be 0.
inline void check_orthonormal(const HostTensor& x,
                              const std::vector<std::int64_t>& zeros = {}) {
    const double most = x.dtype() == DType::f64 ? 1e-12 : 2e-6;
    const auto is_zero = [&](std::int64_t column) {
        return std::find(zeros.begin(), zeros.end(), column) != zeros.end();
    };
    for (std::int64_t i = 0; i < x.shape().columns(); ++i)
        for (std::int64_t j = 0; j <= i; ++j) {
            CAPTURE(i, j);
            if (is_zero(i) || is_zero(j))
                CHECK(column_product(x, i, x, j) == 0);
            else
                CHECK(std::abs(column_product(x, i, x, j) - (i == j)) <= most);
        }
}

/// Checks that column j of `before` is a sum of columns 0 to j of x. The columns of x are
/// orthonormal, or zero.
inline void check_span(const HostTensor& x, const HostTensor& before) {
    const double most = x.dtype() == DType::f64 ? 1e-12 : 4e-6;
    const std::int64_t columns = x.shape().columns();
    for (std::int64_t j = 0; j < columns; ++j) {
        double rest = 0;
        for (std::int64_t row = 0; row < x.shape().matrix_rows(); ++row) {
            double value = before.at(row * columns + j);
            for (std::int64_t i = 0; i <= j; ++i)
                value -= x.at(row * columns + i) * column_product(x, i, before, j);
            rest += value * value;
        }
        CAPTURE(j);
        CHECK(std::sqrt(rest) <= most * std::sqrt(column_product(before, j, before, j)));
    }
}

inline HostTensor orthonormalized(const HostTensor& values) {
    Bench bench;
    const Tensor x = bench->upload(values);
    bench->orthonormalize(x);
    return bench->download(x);
}

TEST_CASE(
    "Orthonormalized columns are orthonormal and span the same spaces, column by column",
    kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape =
        GENERATE(Shape{1, 1}, Shape{5, 1}, Shape{7, 3}, Shape{6, 6}, Shape{33, 8},
                 Shape{3, 40, 17}, Shape{1500, 4}, Shape{4, 0}, Shape{0, 0});
    CAPTURE(shape.text());
    const HostTensor values = random_values(shape, dtype, "x");
    const HostTensor x = orthonormalized(values);
    check_orthonormal(x);
    check_span(x, values);
    // Column 0 keeps its direction; it is not reversed.
    if (x.elements() > 0) CHECK(column_product(x, 0, values, 0) > 0);
}

TEST_CASE("Columns that nearly depend on others become orthogonal to them, too", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    HostTensor values = random_values({50, 4}, dtype, "x");
    const double little = dtype == DType::f64 ? 1e-8 : 1e-3;
    for (std::int64_t row = 0; row < 50; ++row)
        for (std::int64_t column = 1; column < 4; ++column) {
            const std::int64_t place = 4 * row + column;
            values.set(place, values.at(place - column) + little * values.at(place));
        }
    const HostTensor x = orthonormalized(values);
    check_orthonormal(x);
    check_span(x, values);
}

TEST_CASE("Columns that are zero, or sums of earlier columns, become zeros", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    HostTensor values = random_values({300, 6}, dtype, "x");
    for (std::int64_t row = 0; row < 300; ++row) {
        const std::int64_t first = 6 * row;
        values.set(first + 1, 0);
        values.set(first + 3, 3 * values.at(first) - 0.1 * values.at(first + 2));
        values.set(first + 4, 1e-20 * values.at(first + 4));
    }
    const HostTensor x = orthonormalized(values);
    check_orthonormal(x, {1, 3});
    check_span(x, values);
    const HostTensor zeros({9, 2}, dtype);
    CHECK(orthonormalized(zeros) == zeros);
}

TEST_CASE("A NaN in a column makes this column and the later ones NaN", kTags) {
    HostTensor values = random_values({40, 3}, DType::f32, "x");
    values.set(3 * 7 + 1, std::nan(""));
    const HostTensor x = orthonormalized(values);
    for (std::int64_t row = 0; row < 40; ++row) {
        CHECK_FALSE(std::isnan(x.at(3 * row)));
        CHECK(std::isnan(x.at(3 * row + 1)));
        CHECK(std::isnan(x.at(3 * row + 2)));
    }
}

}  // namespace lockstep::test
