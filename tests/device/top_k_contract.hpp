#pragma once

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "tests/device/support.hpp"

namespace lockstep::test {

/// Returns a row's columns, ordered by value, the largest first.
inline std::vector<std::int64_t> ranking(const HostTensor& x, std::int64_t row) {
    const std::int64_t columns = x.shape().columns();
    const auto at = [&](std::int64_t column) { return x.at(row * columns + column); };
    std::vector<std::int64_t> order;
    for (std::int64_t column = 0; column < columns; ++column)
        order.push_back(column);
    std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
        if (std::isnan(at(i)) || std::isnan(at(j))) return !std::isnan(at(j));
        return at(i) > at(j);
    });
    return order;
}

/// Checks, bit by bit, that top_k returns the first k columns of each row's ranking.
inline void ranks(Bench& bench, const HostTensor& x, std::int64_t k) {
    const Shape shape = x.shape().with_last(k);
    const Tensor values = bench->empty(shape, x.dtype());
    const Tensor indices = bench->empty(shape, DType::i32);
    bench->top_k(values, indices, bench->upload(x), k);
    HostTensor expected_values(shape, x.dtype()), expected_indices(shape, DType::i32);
    for (std::int64_t row = 0; row < shape.matrix_rows(); ++row) {
        const std::vector<std::int64_t> order = ranking(x, row);
        for (std::int64_t i = 0; i < k; ++i) {
            const std::int64_t column = order[static_cast<std::size_t>(i)];
            expected_values.set(row * k + i, x.at(row * x.shape().columns() + column));
            expected_indices.set(row * k + i, static_cast<double>(column));
        }
    }
    REQUIRE(bench->download(indices) == expected_indices);
    REQUIRE(bench->download(values) == expected_values);
}

TEST_CASE("A row's largest values come first; of equal values, lower columns", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const Shape shape = GENERATE(Shape{1, 1}, Shape{5, 7}, Shape{3, 33}, Shape{2, 9, 100},
                                 Shape{3, 1025}, Shape{2, 3000}, Shape{0, 5});
    // Many values are equal, or almost none.
    const double range = GENERATE(3.0, 1e6);
    HostTensor x = random_values(shape, dtype, "x", -range, range);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, std::floor(x.at(i)));
    const std::int64_t columns = shape.columns();
    Bench bench;
    for (const std::int64_t k : {std::int64_t{1}, std::min<std::int64_t>(columns, 6),
                                 std::min<std::int64_t>(columns, 100)}) {
        if (k > 6 && columns > 100) continue;
        CAPTURE(shape.text(), k, range);
        ranks(bench, x, k);
    }
}

TEST_CASE("Only the columns of the best groups are read", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const ColumnGroups groups =
        GENERATE(ColumnGroups{4, 2, 2}, ColumnGroups{8, 3, 1}, ColumnGroups{32, 32, 1},
                 ColumnGroups{2, 1, 4}, ColumnGroups{3, 1, 2}, ColumnGroups{1, 1, 1});
    const std::int64_t width = GENERATE(4, 33, 500);
    // Many values are equal, so that groups are equal, too; or almost none.
    const double range = GENERATE(2.0, 1e6);
    const std::int64_t columns = groups.count * width, rows = 7, k = 4;
    CAPTURE(groups.count, groups.chosen, groups.best, width, range);
    HostTensor x = random_values({rows, columns}, dtype, "x", -range, range);
    for (std::int64_t i = 0; i < x.elements(); ++i)
        x.set(i, std::floor(x.at(i)));
    HostTensor sums({rows, groups.count}, DType::f64);
    HostTensor seen(x.shape(), dtype);
    for (std::int64_t row = 0; row < rows; ++row) {
        for (std::int64_t group = 0; group < groups.count; ++group) {
            std::vector<double> own;
            for (std::int64_t at = 0; at < width; ++at)
                own.push_back(x.at(row * columns + group * width + at));
            std::sort(own.rbegin(), own.rend());
            sums.set(row * groups.count + group,
                     std::accumulate(own.begin(), own.begin() + groups.best, 0.0));
        }
        const std::vector<std::int64_t> order = ranking(sums, row);
        for (std::int64_t column = 0; column < columns; ++column) {
            const auto end = order.begin() + groups.chosen;
            const bool looks = std::find(order.begin(), end, column / width) != end;
            seen.set(row * columns + column,
                     looks ? x.at(row * columns + column) : -INFINITY);
        }
    }
    Bench bench;
    const Tensor values = bench->empty({rows, k}, dtype);
    const Tensor indices = bench->empty({rows, k}, DType::i32);
    bench->top_k(values, indices, bench->upload(x), k, groups);
    const HostTensor got = bench->download(values), which = bench->download(indices);
    for (std::int64_t row = 0; row < rows; ++row) {
        const std::vector<std::int64_t> order = ranking(seen, row);
        for (std::int64_t i = 0; i < k; ++i) {
            const std::int64_t column = order[static_cast<std::size_t>(i)];
            REQUIRE(which.at(row * k + i) == static_cast<double>(column));
            REQUIRE(got.at(row * k + i) == x.at(row * columns + column));
        }
    }
}

TEST_CASE("A NaN is the largest, and both zeros are equal", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::vector<double> values{-INFINITY, -0.0, 0.0, 3,    INFINITY,  3,
                                     -2,        0.0,  7,   -0.0, -INFINITY, 1};
    HostTensor x = HostTensor::of<double>({1, 12}, values).as(dtype);
    Bench bench;
    for (const std::int64_t k : {1, 5, 12})
        ranks(bench, x, k);
    const Tensor two = bench->empty({1, 3}, dtype);
    const Tensor indices = bench->empty({1, 3}, DType::i32);
    x.set(5, NAN);
    x.set(9, NAN);
    bench->top_k(two, indices, bench->upload(x), 3);
    REQUIRE(bench->download(indices) ==
            HostTensor::of<std::int32_t>({1, 3}, std::vector{5, 9, 4}));
    const HostTensor got = bench->download(two);
    REQUIRE((std::isnan(got.at(0)) && std::isnan(got.at(1)) && std::isinf(got.at(2))));
}

}  // namespace lockstep::test
