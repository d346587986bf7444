#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "src/device/options.hpp"

namespace lockstep::sim {

/// c (m, n) (+)= op(a) (m, k) times op(b) (k, n).
template <typename T>
struct Product {
    T* c;
    const T* a;
    const T* b;
    std::int64_t m, k, n;
    MatmulOptions options;
    /// Elements from one row to the next, in memory.
    std::int64_t c_row = n;
    std::int64_t a_row = options.transpose_a ? m : k;
    std::int64_t b_row = options.transpose_b ? k : n;
};

/// Computes a product. An element's bits depend only on its row of op(a) and its column
/// of op(b), not on the number of rows or columns. They are the same on all machines with
/// fused multiply-adds (each x86-64-v3, each aarch64).
template <typename T>
void multiply_matrices(const Product<T>& product);

template <>
void multiply_matrices(const Product<float>&);
template <>
void multiply_matrices(const Product<double>&);

/// An element's products are summed in blocks of this size; then the blocks are summed.
template <typename T>
inline constexpr std::int64_t kMatmulBlock = 1024 / sizeof(T);
/// The number of columns of b that are packed at a time.
inline constexpr std::int64_t kMatmulColumns = 384;

template <typename T>
inline constexpr auto kMatmulPacked =
    static_cast<std::size_t>(kMatmulBlock<T>* kMatmulColumns);

/// A kernel computes products with the vectors of one instruction set.
struct MatmulKernel {
    const char* name;
    bool (*runs_here)();
    /// `packed` has room for kMatmulPacked<T> elements.
    void (*f32)(const Product<float>& product, float* packed);
    void (*f64)(const Product<double>& product, double* packed);
};

/// Returns the kernels that run on this machine. The first one is used.
std::span<const MatmulKernel* const> matmul_kernels();

}  // namespace lockstep::sim
