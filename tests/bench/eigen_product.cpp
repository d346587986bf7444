// Compiled once for each width of vectors. For each width, macros rename Eigen and this
// file's EIGEN_OF_WIDTH, because the linker would keep only one of two equal names.
#include "tests/bench/eigen_product.hpp"

#include <Eigen/Core>

namespace lockstep::bench {

namespace {

template <typename T>
void multiply(T* c, const T* a, const T* b, std::int64_t m, std::int64_t k,
              std::int64_t n, MatmulOptions options) {
    using RowMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;
    // A row-major (m, k) is a column-major (k, m), so a transpose costs nothing.
    using ColumnMajor = Eigen::Matrix<T, Eigen::Dynamic, Eigen::Dynamic, Eigen::ColMajor>;
    using Straight = Eigen::Map<const RowMajor>;
    using Transposed = Eigen::Map<const ColumnMajor>;
    Eigen::Map<RowMajor> product(c, m, n);
    if (options.transpose_a)
        product.noalias() = Transposed(a, m, k) * Straight(b, k, n);
    else if (options.transpose_b)
        product.noalias() = Straight(a, m, k) * Transposed(b, k, n);
    else
        product.noalias() = Straight(a, m, k) * Straight(b, k, n);
}

}  // namespace

extern const EigenOfWidth EIGEN_OF_WIDTH{multiply<float>, multiply<double>};

}  // namespace lockstep::bench
