// Measures matrix products on one thread: Lockstep's kernels, Eigen with vectors of both
// widths, and OpenBLAS if it is installed. The libraries take turns in rounds. The result
// is the median GFLOP/s of the rounds.

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <cmath>
#include <cstddef>
#include <dlfcn.h>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "sim/matmul.hpp"
#include "src/core/philox.hpp"
#include "tests/bench/eigen_product.hpp"

namespace {

using namespace lockstep;

struct Shape {
    std::string name;
    std::int64_t m, k, n;
    MatmulOptions options;
};

std::vector<Shape> all_shapes() {
    std::vector<Shape> shapes;
    for (const std::int64_t n : {64, 128, 256, 512, 1024, 2048})
        shapes.push_back({std::to_string(n), n, n, n, {}});
    // For the lessons' transformers: a layer's product and both products of its backward.
    // Then the products of heads.
    for (const std::int64_t hidden : {128, 256})
        for (const std::int64_t wide : {hidden, 3 * hidden, 4 * hidden}) {
            const std::int64_t tokens = hidden / 2;
            const std::string name = std::to_string(tokens) + "x" +
                                     std::to_string(hidden) + "x" + std::to_string(wide);
            shapes.push_back({name + " forward", tokens, hidden, wide, {}});
            shapes.push_back({name + " dx", tokens, wide, hidden, {.transpose_b = true}});
            shapes.push_back({name + " dW", hidden, tokens, wide, {.transpose_a = true}});
        }
    shapes.push_back({"heads, scores", 64, 32, 64, {.transpose_b = true}});
    shapes.push_back({"heads, values", 64, 64, 32, {}});
    for (const int m : {1, 2, 4, 16}) {
        const std::string name = std::to_string(m) + (m == 1 ? " row" : " rows");
        shapes.push_back({name, m, 256, 1024, {}});
        shapes.push_back({name + ", turned", m, 1024, 256, {.transpose_b = true}});
    }
    return shapes;
}

std::int64_t last_shape() {
    return static_cast<std::int64_t>(all_shapes().size()) - 1;
}

/// OpenBLAS's cblas_sgemm or cblas_dgemm, found at run time and set to one thread; null
/// if OpenBLAS is not installed.
template <typename T>
class OpenBlas {
  public:
    OpenBlas() {
        void* library = dlopen("libopenblas.so.0", RTLD_NOW);
        if (library == nullptr) return;
        gemm_ = reinterpret_cast<Gemm>(
            dlsym(library, sizeof(T) == sizeof(float) ? "cblas_sgemm" : "cblas_dgemm"));
        const auto threads =
            reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
        if (threads != nullptr) threads(1);
    }
    bool found() const { return gemm_ != nullptr; }
    void multiply(T* c, const T* a, const T* b, const Shape& shape) const {
        constexpr int kRowMajor = 101;
        constexpr int kStraight = 111;
        constexpr int kTransposed = 112;
        const auto m = static_cast<int>(shape.m), k = static_cast<int>(shape.k),
                   n = static_cast<int>(shape.n);
        const bool a_turned = shape.options.transpose_a,
                   b_turned = shape.options.transpose_b;
        gemm_(kRowMajor, a_turned ? kTransposed : kStraight,
              b_turned ? kTransposed : kStraight, m, n, k, 1, a, a_turned ? m : k, b,
              b_turned ? k : n, 0, c, n);
    }

  private:
    using Gemm = void (*)(int, int, int, int, int, int, T, const T*, int, const T*, int,
                          T, T*, int);
    Gemm gemm_ = nullptr;
};

double seconds_of(const std::function<void()>& work, int times) {
    const auto begin = std::chrono::steady_clock::now();
    for (int i = 0; i < times; ++i)
        work();
    const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
    return taken.count() / times;
}

double median(std::vector<double> values) {
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// Random numbers that begin at a cache line, like the simulator's tensors.
template <typename T>
class Elements {
  public:
    Elements(std::int64_t count, std::string_view name) {
        constexpr std::size_t kLine = 64;
        const auto bytes = static_cast<std::size_t>(count) * sizeof(T);
        room_.resize(bytes + kLine);
        void* begin = room_.data();
        std::size_t left = room_.size();
        data_ = static_cast<T*>(std::align(kLine, bytes, begin, left));
        const RandomStream stream(1, name);
        for (std::int64_t i = 0; i < count; ++i)
            data_[i] = stream.normal<T>(static_cast<std::uint64_t>(i));
    }
    T* data() const { return data_; }

  private:
    std::vector<std::byte> room_;
    T* data_ = nullptr;
};

template <typename T>
void compute(const sim::MatmulKernel& kernel, const sim::Product<T>& product, T* packed) {
    if constexpr (sizeof(T) == sizeof(float))
        kernel.f32(product, packed);
    else
        kernel.f64(product, packed);
}

template <typename T>
bench::EigenProduct<T> function_of(const bench::EigenOfWidth& eigen) {
    if constexpr (sizeof(T) == sizeof(float))
        return eigen.f32;
    else
        return eigen.f64;
}

template <typename T>
void matmul(benchmark::State& state) {
    const Shape shape = all_shapes()[static_cast<std::size_t>(state.range(0))];
    state.SetLabel(shape.name);
    const Elements<T> a(shape.m * shape.k, "a"), b(shape.k * shape.n, "b"),
        c(shape.m * shape.n, "c"),
        packed(static_cast<std::int64_t>(sim::kMatmulPacked<T>), "packed");
    const OpenBlas<T> blas;
    std::map<std::string, std::function<void()>> ways;
    for (const sim::MatmulKernel* kernel : sim::matmul_kernels())
        ways[kernel->name] = [&, kernel] {
            compute<T>(
                *kernel,
                {c.data(), a.data(), b.data(), shape.m, shape.k, shape.n, shape.options},
                packed.data());
        };
    const auto add_eigen = [&](const std::string& name,
                               const bench::EigenOfWidth& eigen) {
        ways[name] = [&, multiply = function_of<T>(eigen)] {
            multiply(c.data(), a.data(), b.data(), shape.m, shape.k, shape.n,
                     shape.options);
        };
    };
    add_eigen("eigen256", bench::kEigen256);
#ifdef __x86_64__
    if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq"))
        add_eigen("eigen512", bench::kEigen512);
#endif
    if (blas.found())
        ways["openblas"] = [&] { blas.multiply(c.data(), a.data(), b.data(), shape); };

    const double operations = 2.0 * static_cast<double>(shape.m * shape.k * shape.n);
    constexpr double kOperationsARound = 2e7;
    const int times = std::max(1, static_cast<int>(kOperationsARound / operations));
    std::map<std::string, std::vector<double>> seconds;
    for ([[maybe_unused]] const auto _ : state)
        for (const auto& [name, way] : ways)
            seconds[name].push_back(seconds_of(way, times));
    for (const auto& [name, taken] : seconds)
        state.counters[name] = std::round(1e-8 * operations / median(taken)) / 10;
}

BENCHMARK(matmul<float>)->DenseRange(0, last_shape())->Unit(benchmark::kMillisecond);
BENCHMARK(matmul<double>)->DenseRange(0, last_shape())->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
