// A device's matrix product over plain Eigen, and over OpenBLAS where it is installed:
// ratios of rounds in which each takes its turn.

#include <algorithm>
#include <benchmark/benchmark.h>
#include <chrono>
#include <dlfcn.h>
#include <vector>

#include "sim/device.hpp"
#include "sim/eigen.hpp"
#include "tests/device/plain_monitor.hpp"

namespace {

using namespace lockstep;
using Matrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

double seconds_of(const auto& work) {
    const auto start = std::chrono::steady_clock::now();
    work();
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
        .count();
}

double median(std::vector<double> values) {
    if (values.empty()) return 0;
    const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
    std::nth_element(values.begin(), middle, values.end());
    return *middle;
}

/// cblas_sgemm of OpenBLAS on one thread, found at run time; null where it is not
/// installed.
struct OpenBlas {
    using Gemm = void (*)(int, int, int, int, int, int, float, const float*, int,
                          const float*, int, float, float*, int);
    OpenBlas() {
        void* library = dlopen("libopenblas.so.0", RTLD_NOW);
        if (library == nullptr) return;
        gemm = reinterpret_cast<Gemm>(dlsym(library, "cblas_sgemm"));
        const auto threads =
            reinterpret_cast<void (*)(int)>(dlsym(library, "openblas_set_num_threads"));
        if (threads != nullptr) threads(1);
    }
    void multiply(int n, const float* a, const float* b, float* c) const {
        constexpr int kRowMajor = 101;
        constexpr int kNoTranspose = 111;
        gemm(kRowMajor, kNoTranspose, kNoTranspose, n, n, n, 1, a, n, b, n, 0, c, n);
    }
    Gemm gemm = nullptr;
};

void matmul(benchmark::State& state) {
    const std::int64_t n = state.range(0);
    test::PlainMonitor monitor;
    sim::CpuDevice device(0, monitor);
    const Tensor a = device.empty({n, n}, DType::f32);
    const Tensor b = device.empty({n, n}, DType::f32);
    const Tensor c = device.empty({n, n}, DType::f32);
    device.random_normal(a, {1, "a"}, 0, 1);
    device.random_normal(b, {1, "b"}, 0, 1);
    const Eigen::Map<const Matrix> plain_a(a.data<float>(), n, n);
    const Eigen::Map<const Matrix> plain_b(b.data<float>(), n, n);
    Matrix plain_c(n, n);
    const OpenBlas blas;

    std::vector<double> over_eigen;
    std::vector<double> over_blas;
    double seconds = 0;
    for (auto _ : state) {
        const double ours = seconds_of([&] { device.matmul_into(c, a, b); });
        over_eigen.push_back(ours /
                             seconds_of([&] { plain_c.noalias() = plain_a * plain_b; }));
        if (blas.gemm != nullptr)
            over_blas.push_back(ours / seconds_of([&] {
                                    blas.multiply(static_cast<int>(n), a.data<float>(),
                                                  b.data<float>(), plain_c.data());
                                }));
        seconds += ours;
    }
    state.counters["time_over_eigen"] = median(over_eigen);
    if (blas.gemm != nullptr) state.counters["time_over_openblas"] = median(over_blas);
    state.counters["gflops"] = 2e-9 * static_cast<double>(n * n * n) *
                               static_cast<double>(state.iterations()) / seconds;
}
BENCHMARK(matmul)->Arg(128)->Arg(512)->Arg(1024)->Unit(benchmark::kMillisecond);

}  // namespace

BENCHMARK_MAIN();
