#pragma once

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

template <typename T>
void multiply_matrices(const Product<T>& product) {
    if (product.m + product.k + product.n < kBlocked)
        small_product(product);
    else
        eigen_product(product);
}

}  // namespace lockstep::sim
