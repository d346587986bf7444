#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <vector>

#include "sim/matmul.hpp"
#include "src/core/philox.hpp"
#include "tests/catch.hpp"

// Compares each kernel's bits with the definition: an element is a sum of blocks, and
// each block is a chain of fused multiply-adds.

namespace lockstep::test {

namespace {

using sim::MatmulKernel;
using sim::Product;

/// Rows of random numbers. Between the rows there is NaN, which must not be read.
template <typename T>
std::vector<T> random_rows(std::int64_t rows, std::int64_t columns, std::int64_t row,
                           std::string_view name) {
    const RandomStream stream(1, name);
    std::vector<T> elements(static_cast<std::size_t>(rows * row),
                            std::numeric_limits<T>::quiet_NaN());
    for (std::int64_t i = 0; i < rows; ++i)
        for (std::int64_t j = 0; j < columns; ++j)
            elements[static_cast<std::size_t>(i * row + j)] = static_cast<T>(
                stream.uniform(static_cast<std::uint64_t>(i * columns + j)) - 0.5);
    return elements;
}

/// Returns one element; adds it to the old result if the product accumulates.
template <typename T>
T element(const Product<T>& product, std::int64_t i, std::int64_t j) {
    const bool a_turned = product.options.transpose_a,
               b_turned = product.options.transpose_b;
    T total = product.options.accumulate ? product.c[i * product.c_row + j] : 0;
    T sum = 0;
    for (std::int64_t p = 0; p < product.k; ++p) {
        if (p > 0 && p % sim::kMatmulBlock<T> == 0) {
            total += sum;
            sum = 0;
        }
        sum = std::fma(
            product.a[a_turned ? p * product.a_row + i : i * product.a_row + p],
            product.b[b_turned ? j * product.b_row + p : p * product.b_row + j], sum);
    }
    return total + sum;
}

template <typename T>
void multiply_by_definition(const Product<T>& product) {
    for (std::int64_t i = 0; i < product.m; ++i)
        for (std::int64_t j = 0; j < product.n; ++j)
            product.c[i * product.c_row + j] = element(product, i, j);
}

void compute(const MatmulKernel& kernel, const Product<float>& product, float* packed) {
    kernel.f32(product, packed);
}

void compute(const MatmulKernel& kernel, const Product<double>& product, double* packed) {
    kernel.f64(product, packed);
}

/// Returns whether the kernel fuses multiply and add. In a build for all x86 processors
/// the plain kernel does not, because it is for processors without such an instruction.
bool fuses(const MatmulKernel& kernel) {
#if defined(__x86_64__) && !defined(__FMA__)
    return std::string(kernel.name) != "plain";
#else
    return kernel.name != nullptr;
#endif
}

/// This many elements on both sides of a result must stay as they are.
constexpr std::int64_t kMargin = 3;

/// Leaves a gap of `apart` elements between the rows of each matrix.
template <typename T>
void check_kernels(std::int64_t m, std::int64_t k, std::int64_t n, MatmulOptions options,
                   std::int64_t apart) {
    Product<T> product{nullptr, nullptr, nullptr, m, k, n, options};
    for (std::int64_t* const row : {&product.a_row, &product.b_row, &product.c_row})
        *row += apart;
    // Operands are not aligned.
    const auto operand = [](std::int64_t rows, std::int64_t columns, std::int64_t row,
                            const char* name) {
        auto elements = random_rows<T>(rows, columns, row, name);
        elements.insert(elements.begin(), 0);
        return elements;
    };
    const bool a_turned = options.transpose_a, b_turned = options.transpose_b;
    const auto a = operand(a_turned ? k : m, a_turned ? m : k, product.a_row, "a"),
               b = operand(b_turned ? n : k, b_turned ? k : n, product.b_row, "b");
    // Only the elements of the result may be written.
    const auto before = random_rows<T>(1, m * product.c_row + 2 * kMargin,
                                       m * product.c_row + 2 * kMargin, "c");
    auto expected = before;
    std::vector<T> packed(sim::kMatmulPacked<T>);
    product.c = expected.data() + kMargin;
    product.a = a.data() + 1;
    product.b = b.data() + 1;
    multiply_by_definition(product);
    for (const MatmulKernel* kernel : sim::matmul_kernels()) {
        if (!fuses(*kernel)) continue;
        CAPTURE(kernel->name, sizeof(T), m, k, n, options.transpose_a,
                options.transpose_b, options.accumulate);
        auto found = before;
        product.c = found.data() + kMargin;
        compute(*kernel, product, packed.data());
        REQUIRE(found == expected);
    }
}

}  // namespace

TEST_CASE("A product by each kernel of this machine has its definition's bits") {
    const std::int64_t m = GENERATE(1, 2, 3, 4, 5, 8, 17, 33);
    const std::int64_t k = GENERATE(0, 1, 7, 128, 129, 300, 517);
    const std::int64_t n = GENERATE(1, 2, 7, 16, 17, 49, 97, 400);
    for (const bool transpose_a : {false, true})
        for (const bool transpose_b : {false, true})
            for (const bool accumulate : {false, true}) {
                const std::int64_t apart = (m + n) % 2 * 5;
                const MatmulOptions options{transpose_a, transpose_b, accumulate};
                check_kernels<float>(m, k, n, options, apart);
                check_kernels<double>(m, k, n, options, apart);
            }
}

}  // namespace lockstep::test
