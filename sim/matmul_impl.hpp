#pragma once

#include <algorithm>
#include <vector>

#include "sim/eigen.hpp"
#include "sim/matmul.hpp"

namespace lockstep::sim {

// Results must not depend on where in memory the operands lie. Eigen's products of
// matrices in blocks and its products with vectors do not; its small products, which take
// single elements up to an aligned address, do. Those are computed here.

/// Products with m + k + n below this, Eigen computes without blocks.
inline constexpr std::int64_t kBlocked = 20;

/// The product by its definition.
template <typename T>
void small_product(const Product<T>& by) {
    const auto [c, a, b, m, k, n, options] = by;
    // Element (i, p) of op(a) is a[i * a_row + p * a_column].
    const std::int64_t a_row = options.transpose_a ? 1 : k;
    const std::int64_t a_column = options.transpose_a ? m : 1;
    const std::int64_t b_row = options.transpose_b ? 1 : n;
    const std::int64_t b_column = options.transpose_b ? k : 1;
    for (std::int64_t i = 0; i < m; ++i) {
        for (std::int64_t j = 0; j < n; ++j) {
            double sum = options.accumulate ? c[i * n + j] : T(0);
            for (std::int64_t p = 0; p < k; ++p)
                sum += static_cast<double>(a[i * a_row + p * a_column]) *
                       static_cast<double>(b[p * b_row + j * b_column]);
            c[i * n + j] = static_cast<T>(sum);
        }
    }
}

template <typename T>
void eigen_product(const Product<T>& by) {
    using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    // A row-major (m, k) is a column-major (k, m): transposing it costs nothing.
    using ColumnMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
    using Straight = Eigen::Map<const RowMajor>;
    using Transposed = Eigen::Map<const ColumnMajor>;
    const auto [c, a, b, m, k, n, options] = by;
    Eigen::Map<RowMajor> product(c, m, n);
    if (!options.accumulate) product.setZero();
    if (options.transpose_a && options.transpose_b)
        product.noalias() += Transposed(a, m, k) * Transposed(b, k, n);
    else if (options.transpose_a)
        product.noalias() += Transposed(a, m, k) * Straight(b, k, n);
    else if (options.transpose_b)
        product.noalias() += Straight(a, m, k) * Transposed(b, k, n);
    else
        product.noalias() += Straight(a, m, k) * Straight(b, k, n);
}

/// Eigen computes a row in another order if it is one of the last few, which do not fill
/// a block of its kernels, or the only one. Of rows in multiples of this all have the
/// same bits as among more of them (tests/device/row_by_row_contract.hpp).
inline constexpr std::int64_t kAlikeRows = 4;

/// The product, no row of which depends on how many there are: the last few are filled up
/// with zeros. If columns are few, each element is computed by itself.
template <typename T>
void row_by_row_product(const Product<T>& by) {
    const auto [c, a, b, m, k, n, options] = by;
    if (k + n < kBlocked) return small_product(by);
    const std::int64_t last = m % kAlikeRows, before = m - last;
    if (before > 0) eigen_product<T>({c, a, b, before, k, n, options});
    if (last == 0) return;
    std::vector<T> rows(static_cast<std::size_t>(kAlikeRows * k));
    std::vector<T> results(static_cast<std::size_t>(kAlikeRows * n));
    std::copy_n(a + before * k, last * k, rows.data());
    if (options.accumulate) std::copy_n(c + before * n, last * n, results.data());
    eigen_product<T>({results.data(), rows.data(), b, kAlikeRows, k, n, options});
    std::copy_n(results.data(), last * n, c + before * n);
}

template <typename T>
void multiply_matrices(const Product<T>& product) {
    if (product.options.row_by_row)
        row_by_row_product(product);
    else if (product.m + product.k + product.n < kBlocked)
        small_product(product);
    else
        eigen_product(product);
}

}  // namespace lockstep::sim
