#pragma once

#include "tests/device/support.hpp"

namespace lockstep::test {

TEST_CASE("Row by row, a product's rows have the same bits for any number of rows",
          kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64, DType::bf16);
    const bool transposed = GENERATE(true, false);
    const std::int64_t k = GENERATE(1, 8, 48, 300);
    const std::int64_t n = GENERATE(1, 8, 65, 256);
    const bool accumulate = GENERATE(true, false);
    CAPTURE(dtype, transposed, k, n, accumulate);
    const std::int64_t most = 70;
    Bench bench;
    const Tensor a = bench->upload(random_values({most, k}, dtype, "a"));
    const Tensor b =
        bench->upload(random_values(transposed ? Shape{n, k} : Shape{k, n}, dtype, "b"));
    const HostTensor before = random_values({most, n}, dtype, "c");
    const RowByRow scope(*bench.device);
    const auto product = [&](std::int64_t first, std::int64_t count) {
        const Tensor c = bench->upload(before.rows(first, count));
        bench->matmul_into(c, a.rows(first, count), b,
                           {.transpose_b = transposed, .accumulate = accumulate});
        return bench->download(c);
    };
    const HostTensor all = product(0, most);
    for (const std::int64_t count : {1, 2, 3, 4, 5, 7, 8, 31, 64, 69})
        for (const std::int64_t first : {std::int64_t{0}, most - count}) {
            CAPTURE(first, count);
            REQUIRE(product(first, count) == all.rows(first, count));
        }
}

TEST_CASE("Groups of rows are multiplied row by row, too", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t k = 48, n = 65;
    Bench bench;
    const Tensor a = bench->upload(random_values({10, k}, dtype, "a"));
    const Tensor b = bench->upload(random_values({2 * n, k}, dtype, "b"));
    const RowByRow scope(*bench.device);
    const auto product = [&](const Tensor& rows, std::vector<std::int64_t> groups) {
        const Tensor c = bench->zeros({rows.shape().matrix_rows(), n}, dtype);
        bench->grouped_matmul(c, rows, b, std::move(groups), {.transpose_b = true});
        return bench->download(c);
    };
    const HostTensor all = product(a, {7, 3});
    REQUIRE(product(a.rows(0, 1), {1, 0}) == all.rows(0, 1));
    REQUIRE(product(a.rows(5, 3), {2, 1}) == all.rows(5, 3));
    REQUIRE(product(a.rows(9, 1), {0, 1}) == all.rows(9, 1));
}

TEST_CASE("Row by row, a product equals the usual product", kTags) {
    const DType dtype = GENERATE(DType::f32, DType::f64);
    const std::int64_t m = GENERATE(1, 5, 66);
    Bench bench;
    const Tensor a = bench->upload(random_values({m, 30}, dtype, "a"));
    const Tensor b = bench->upload(random_values({30, 20}, dtype, "b"));
    const HostTensor left = bench->download(a), right = bench->download(b);
    const HostTensor product = bench->download(bench->matmul(a, b, {.row_by_row = true}));
    Expected expected(product.shape(), dtype);
    for (std::int64_t i = 0; i < m; ++i)
        for (std::int64_t j = 0; j < 20; ++j) {
            Sum sum;
            for (std::int64_t p = 0; p < 30; ++p)
                sum.add(left.at(i * 30 + p) * right.at(p * 20 + j));
            sum.expect(expected);
        }
    expected.check(product);
    refuses("matmul: row_by_row is not possible if a is transposed",
            [&] { bench->matmul(a, b, {.transpose_a = true, .row_by_row = true}); });
}

}  // namespace lockstep::test
