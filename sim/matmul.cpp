#include "sim/matmul.hpp"

#include <algorithm>
#include <chrono>
#include <memory>
#include <utility>
#include <vector>

#include "sim/in_parts.hpp"

namespace lockstep::sim {

#ifdef __x86_64__
extern const MatmulKernel kMatmulAvx512;
extern const MatmulKernel kMatmulAvx2;
#endif
extern const MatmulKernel kMatmulPlain;

namespace {

/// Returns this thread's buffer for packed columns. Its pages use no memory until they
/// are written.
template <typename T>
T* packed() {
    thread_local const auto kRoom = std::make_unique_for_overwrite<T[]>(kMatmulPacked<T>);
    // NOLINTNEXTLINE(clang-analyzer-cplusplus.NewDelete): it is not freed yet.
    return kRoom.get();
}

/// Returns each kernel's best time for a product of a usual size. The kernels take turns,
/// because a processor that has not used its widest vectors for a while is slow at first.
std::vector<double> seconds_of(std::span<const MatmulKernel* const> kernels) {
    constexpr std::int64_t kSide = 96;
    constexpr int kTurns = 8;
    const std::vector<float> a(kSide * kSide, 1), b(kSide * kSide, 1);
    std::vector<float> c(kSide * kSide);
    std::vector<double> best(kernels.size(), 1);
    for (int turn = 0; turn < kTurns; ++turn)
        for (std::size_t i = 0; i < kernels.size(); ++i) {
            const auto begin = std::chrono::steady_clock::now();
            kernels[i]->f32({c.data(), a.data(), b.data(), kSide, kSide, kSide, {}},
                            packed<float>());
            const std::chrono::duration<double> taken =
                std::chrono::steady_clock::now() - begin;
            best[i] = std::min(best[i], taken.count());
        }
    return best;
}

/// Finds out in less than a millisecond which vector width is fastest: it is not always
/// the widest. Results have the same bits with all widths.
std::vector<const MatmulKernel*> find_kernels() {
    std::vector<const MatmulKernel*> found;
#ifdef __x86_64__
    for (const MatmulKernel* kernel : {&kMatmulAvx512, &kMatmulAvx2})
        if (kernel->runs_here()) found.push_back(kernel);
    if (found.size() > 1) {
        const std::vector<double> seconds = seconds_of(found);
        if (seconds[1] < seconds[0]) std::swap(found[0], found[1]);
    }
#endif
    found.push_back(&kMatmulPlain);
    return found;
}

}  // namespace

std::span<const MatmulKernel* const> matmul_kernels() {
    static const std::vector<const MatmulKernel*> kAll = find_kernels();
    return kAll;
}

namespace {

void multiply(const Product<float>& product) {
    matmul_kernels().front()->f32(product, packed<float>());
}

void multiply(const Product<double>& product) {
    matmul_kernels().front()->f64(product, packed<double>());
}

/// Returns the part of the product that computes columns [first, first + count).
template <typename T>
Product<T> columns_of(Product<T> product, std::int64_t first, std::int64_t count) {
    product.c += first;
    product.b += first * (product.options.transpose_b ? product.b_row : 1);
    product.n = count;
    return product;
}

template <typename T>
Product<T> rows_of(Product<T> product, std::int64_t first, std::int64_t count) {
    product.c += first * product.c_row;
    product.a += first * (product.options.transpose_a ? 1 : product.a_row);
    product.m = count;
    return product;
}

template <typename T>
void multiply_in_parts(const Product<T>& whole) {
    constexpr std::int64_t kLongProducts = 2'000'000;  // multiplications, of a part
    constexpr std::int64_t kWidth = 16;
    const bool by_rows = whole.m > whole.n;
    const std::int64_t extent = by_rows ? whole.m : whole.n;
    const std::int64_t of_one = whole.k * (by_rows ? whole.n : whole.m);
    const std::int64_t longer = of_one > 0 ? kLongProducts / of_one / kWidth : extent;
    in_parts(extent, (longer + 1) * kWidth, [&](std::int64_t first, std::int64_t count) {
        multiply(by_rows ? rows_of(whole, first, count)
                         : columns_of(whole, first, count));
    });
}

}  // namespace

template <>
void multiply_matrices(const Product<float>& product) {
    multiply_in_parts(product);
}

template <>
void multiply_matrices(const Product<double>& product) {
    multiply_in_parts(product);
}

}  // namespace lockstep::sim
