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
    /// Elements from one row to the next, of each as it lies in memory.
    std::int64_t c_row = n;
    std::int64_t a_row = options.transpose_a ? m : k;
    std::int64_t b_row = options.transpose_b ? k : n;
};

/// Computes a product. The bits of an element depend on its row of op(a) and its column
/// of op(b) alone: not on how many there are of either, nor on the machine, if it has
/// fused multiply-adds (each x86-64-v3, each aarch64).
template <typename T>
void multiply_matrices(const Product<T>& product);

template <>
void multiply_matrices(const Product<float>&);
template <>
void multiply_matrices(const Product<double>&);

/// So many products of an element are summed by themselves, then added to the rest.
template <typename T>
inline constexpr std::int64_t kMatmulBlock = 1024 / sizeof(T);
/// So many columns of b are packed at a time.
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

/// Returns those that run on this machine; the one that is used is the first.
std::span<const MatmulKernel* const> matmul_kernels();

}  // namespace lockstep::sim
