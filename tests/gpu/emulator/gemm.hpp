#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>
#include <vector>

#include "src/core/bf16.hpp"

namespace emulated {

/// The type in which products of elements of type T are added up.
template <typename T>
using SumOf = std::conditional_t<std::is_same_v<T, lockstep::Bf16>, float, T>;

/// Returns the nearest number with 10 bits after the leading 1. If two are equally near,
/// returns the number farther from 0 (PTX's cvt.rna.tf32.f32). NaN and infinity do not
/// change.
inline float in_tf32(float x) {
    constexpr std::uint32_t kLeft = 13, kHalf = 1U << (kLeft - 1);
    if (!std::isfinite(x)) return x;
    return std::bit_cast<float>((std::bit_cast<std::uint32_t>(x) + kHalf) >>
                                kLeft << kLeft);
}

/// C (m, n) = alpha op(A) op(B) + beta C, with all matrices column by column; op(A) is
/// (m, k), op(B) is (k, n). C is not read if beta is 0.
template <typename T>
struct Product {
    bool transpose_a, transpose_b;
    std::int64_t m, n, k;
    SumOf<T> alpha, beta;
    const T* a;
    std::int64_t lda;
    const T* b;
    std::int64_t ldb;
    T* c;
    std::int64_t ldc;
    bool tf32 = false;  ///< whether f32 elements of A and B are rounded first

    std::int64_t rows_a() const { return transpose_a ? k : m; }
    std::int64_t columns_a() const { return transpose_a ? m : k; }
    std::int64_t rows_b() const { return transpose_b ? n : k; }
    std::int64_t columns_b() const { return transpose_b ? k : n; }

    bool possible() const {
        const auto wide = [](std::int64_t stride, std::int64_t rows) {
            return stride >= std::max<std::int64_t>(1, rows);
        };
        return m >= 0 && n >= 0 && k >= 0 && wide(lda, rows_a()) && wide(ldb, rows_b()) &&
               wide(ldc, m);
    }

    /// Returns whether `count` results, `stride` apart, share no element: whether each
    /// begins after the previous one's end, or all are side by side in the same columns.
    bool results_apart(std::int64_t stride, std::int64_t count) const {
        return stride >= (n - 1) * ldc + m ||
               (stride >= m && (count - 1) * stride + m <= ldc);
    }

    void run() const {
        const std::vector<SumOf<T>> straight = columns_of_a();
        std::vector<SumOf<T>> sums(static_cast<std::size_t>(m));
        for (std::int64_t j = 0; j < n; ++j) {
            std::fill(sums.begin(), sums.end(), SumOf<T>{0});
            for (std::int64_t l = 0; l < k; ++l) {
                const SumOf<T> factor =
                    element(transpose_b ? b[j + l * ldb] : b[l + j * ldb]);
                const SumOf<T>* const column = straight.data() + l * m;
                for (std::int64_t i = 0; i < m; ++i)
                    sums[static_cast<std::size_t>(i)] += column[i] * factor;
            }
            T* const into = c + j * ldc;
            for (std::int64_t i = 0; i < m; ++i) {
                const SumOf<T> sum = alpha * sums[static_cast<std::size_t>(i)];
                into[i] = T(beta == 0 ? sum : sum + beta * into[i]);
            }
        }
    }

  private:
    SumOf<T> element(T stored) const {
        if constexpr (std::is_same_v<T, float>)
            if (tf32) return in_tf32(stored);
        return stored;
    }

    std::vector<SumOf<T>> columns_of_a() const {
        std::vector<SumOf<T>> straight(static_cast<std::size_t>(m * k));
        for (std::int64_t l = 0; l < k; ++l)
            for (std::int64_t i = 0; i < m; ++i)
                straight[static_cast<std::size_t>(i + l * m)] =
                    element(transpose_a ? a[l + i * lda] : a[i + l * lda]);
        return straight;
    }
};

}  // namespace emulated
