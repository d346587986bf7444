// Tests the emulator of CUDA and cuBLAS, with which gpu/ is tested. Each test runs in its
// own process, because some checks end the process.

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <cublas_v2.h>
#include <thread>
#include <utility>

#include "tests/catch.hpp"
#include "tests/gpu/emulator/gpu_test.hpp"

using namespace emulated::test;

namespace {

using std::chrono::milliseconds;

void sleep_in_stream(void* duration) {
    std::this_thread::sleep_for(*static_cast<milliseconds*>(duration));
}

milliseconds short_while{50};

__global__ void set_one(float* x, int i, float value) {
    x[i] = value;
}

/// Requires that a process dies with the message `text`, unless a sanitizer ends it.
void dies_with(const std::string& text, lockstep::FunctionRef<void(int)> body) {
    const std::vector<Ended> ended = in_processes(1, body);
    const std::string& errors = ended[0].errors;
    INFO(errors);
    REQUIRE(ended[0].status != 0);
    const bool said = errors.find(text) != std::string::npos;
    const bool caught =
        errors.find("AddressSanitizer: use-after-poison") != std::string::npos;
    REQUIRE((said || caught));
}

/// Returns an element of the correct product.
template <typename T>
T element(const std::vector<T>& a, const std::vector<T>& b, bool ta, bool tb, int m,
          int n, int k, int i, int j) {
    T sum = 0;
    for (int l = 0; l < k; ++l)
        sum += a[static_cast<std::size_t>(ta ? l + i * k : i + l * m)] *
               b[static_cast<std::size_t>(tb ? j + l * n : l + j * k)];
    return sum;
}

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                    int m, int n, int k, const float* alpha, const float* a, int lda,
                    const float* b, int ldb, const float* beta, float* c, int ldc) {
    return cublasSgemm(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

cublasStatus_t gemm(cublasHandle_t handle, cublasOperation_t ta, cublasOperation_t tb,
                    int m, int n, int k, const double* alpha, const double* a, int lda,
                    const double* b, int ldb, const double* beta, double* c, int ldc) {
    return cublasDgemm(handle, ta, tb, m, n, k, alpha, a, lda, b, ldb, beta, c, ldc);
}

cublasStatus_t batched(cublasHandle_t handle, int m, int n, int k, const float* alpha,
                       const float* a, int lda, int step_a, const float* b, int ldb,
                       int step_b, const float* beta, float* c, int ldc, int step_c,
                       int count) {
    return cublasSgemmStridedBatched_64(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, alpha,
                                        a, lda, step_a, b, ldb, step_b, beta, c, ldc,
                                        step_c, count);
}

cublasStatus_t batched(cublasHandle_t handle, int m, int n, int k, const double* alpha,
                       const double* a, int lda, int step_a, const double* b, int ldb,
                       int step_b, const double* beta, double* c, int ldc, int step_c,
                       int count) {
    return cublasDgemmStridedBatched_64(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, n, k, alpha,
                                        a, lda, step_a, b, ldb, step_b, beta, c, ldc,
                                        step_c, count);
}

/// Three products with results side by side in the same columns. One row is not used.
template <typename T>
void check_batches() {
    const int m = 2, n = 3, k = 4, count = 3, ldc = 7;
    std::vector<T> a(m * k * count), b(k * n * count);
    for (std::size_t i = 0; i < a.size(); ++i)
        a[i] = static_cast<T>(i % 7) - 3;
    for (std::size_t i = 0; i < b.size(); ++i)
        b[i] = static_cast<T>(i % 5) - 2;
    cublasHandle_t handle = nullptr;
    expect(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "a handle");
    const T alpha = 2, beta = 1;
    const T* const da = on_device(a);
    const T* const db = on_device(b);
    T* const c = on_device(std::vector<T>(ldc * n, 10));
    const auto multiply = [&](int step_c) {
        return batched(handle, m, n, k, &alpha, da, m, m * k, db, k, k * n, &beta, c, ldc,
                       step_c, count);
    };
    expect(multiply(1) == CUBLAS_STATUS_INVALID_VALUE, "results that overlap");
    expect(multiply(3) == CUBLAS_STATUS_INVALID_VALUE, "results that wrap around");
    expect(multiply(m) == CUBLAS_STATUS_SUCCESS, "products");
    const std::vector<T> got = on_host(c, ldc * n);
    for (int p = 0; p < count; ++p) {
        const std::vector<T> own_a(a.begin() + p * m * k, a.begin() + (p + 1) * m * k);
        const std::vector<T> own_b(b.begin() + p * k * n, b.begin() + (p + 1) * k * n);
        for (int i = 0; i < m; ++i)
            for (int j = 0; j < n; ++j) {
                const int place = p * m + i + j * ldc;
                expect(
                    got[static_cast<std::size_t>(place)] ==
                        alpha * element(own_a, own_b, false, false, m, n, k, i, j) + 10,
                    "each element");
            }
    }
    expect(got[6] == 10 && got[13] == 10 && got[20] == 10, "the row left");
    expect(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS, "its end");
}

/// c (m, n) = 3 op(a) (m, k) op(b) (k, n) + beta c, column by column, as in BLAS.
template <typename T>
void check_product(cublasHandle_t handle, bool ta, bool tb, T beta) {
    const int m = 5, n = 3, k = 4;
    std::vector<T> a(m * k), b(k * n);
    for (std::size_t i = 0; i < a.size(); ++i)
        a[i] = static_cast<T>(i % 7) - 3;
    for (std::size_t i = 0; i < b.size(); ++i)
        b[i] = static_cast<T>(i % 5) - 2;
    const T before = beta == 0 ? static_cast<T>(NAN) : T{1}, alpha = 3;
    T* const c = on_device(std::vector<T>(m * n, before));
    expect(gemm(handle, ta ? CUBLAS_OP_T : CUBLAS_OP_N, tb ? CUBLAS_OP_T : CUBLAS_OP_N, m,
                n, k, &alpha, on_device(a), ta ? k : m, on_device(b), tb ? n : k, &beta,
                c, m) == CUBLAS_STATUS_SUCCESS,
           "a product");
    const std::vector<T> got = on_host(c, m * n);
    for (std::size_t at = 0; at < got.size(); ++at) {
        const int i = static_cast<int>(at) % m, j = static_cast<int>(at) / m;
        expect(got[at] == alpha * element(a, b, ta, tb, m, n, k, i, j) + beta,
               "each element");
    }
}

template <typename T>
void check_products() {
    cublasHandle_t handle = nullptr;
    expect(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "a handle");
    for (const bool ta : {false, true})
        for (const bool tb : {false, true})
            for (const T beta : {T{0}, T{2}})
                check_product(handle, ta, tb, beta);
    expect(cublasDestroy(handle) == CUBLAS_STATUS_SUCCESS, "its end");
    expect(cublasSetStream(handle, nullptr) == CUBLAS_STATUS_NOT_INITIALIZED, "no more");
}

}  // namespace

TEST_CASE("events order operations while the host continues", "[emulator]") {
    REQUIRE(alone([](int) {
                cudaStream_t first = new_stream(), second = new_stream();
                cudaEvent_t written = nullptr;
                works(cudaEventCreateWithFlags(&written, cudaEventDisableTiming));
                expect(cudaEventQuery(written) == cudaSuccess, "never recorded, so done");
                float* const x = on_device(std::vector<float>(1, 1));
                float* const copy = on_device(std::vector<float>(1));
                works(cudaLaunchHostFunc(first, sleep_in_stream, &short_while));
                works(launch(first, set_one, 1, 1, x, 0, 2.0F));
                works(cudaEventRecord(written, first));
                works(cudaStreamWaitEvent(second, written));
                works(cudaMemcpyAsync(copy, x, 4, cudaMemcpyDeviceToDevice, second));
                expect(cudaStreamQuery(second) == cudaErrorNotReady, "second waits");
                expect(cudaEventQuery(written) == cudaErrorNotReady, "first is not done");
                works(cudaStreamSynchronize(second));
                expect(on_host(copy, 1)[0] == 2, "what first wrote");
            }) == "");
}

TEST_CASE("operations race unless events put them in order", "[emulator]") {
    REQUIRE(alone([](int) {
                cudaStream_t first = new_stream(), second = new_stream();
                float* const x = on_device(std::vector<float>(1, 1));
                float* const copy = on_device(std::vector<float>(1));
                works(cudaLaunchHostFunc(first, sleep_in_stream, &short_while));
                works(launch(first, set_one, 1, 1, x, 0, 2.0F));
                works(cudaMemcpyAsync(copy, x, 4, cudaMemcpyDeviceToDevice, second));
                works(cudaStreamSynchronize(second));
                expect(on_host(copy, 1)[0] == 1, "what was there before");
                works(cudaStreamSynchronize(first));
            }) == "");
}

TEST_CASE("events measure time, and stand for their latest record", "[emulator]") {
    REQUIRE(alone([](int) {
                cudaStream_t stream = new_stream();
                cudaEvent_t start = nullptr, end = nullptr;
                works(cudaEventCreate(&start));
                works(cudaEventCreate(&end));
                works(cudaEventRecord(end, stream));
                works(cudaEventSynchronize(end));
                works(cudaEventRecord(start, stream));
                works(cudaLaunchHostFunc(stream, sleep_in_stream, &short_while));
                works(cudaEventRecord(end, stream));
                float elapsed = 0;
                expect(cudaEventElapsedTime(&elapsed, start, end) == cudaErrorNotReady,
                       "not yet");
                works(cudaEventSynchronize(end));
                works(cudaEventElapsedTime(&elapsed, start, end));
                expect(elapsed >= 49 && elapsed < 500'000, "50 ms");
                works(cudaEventDestroy(end));
                expect(cudaEventRecord(end, stream) == cudaErrorInvalidResourceHandle,
                       "a destroyed event");
                works(cudaStreamDestroy(stream));
                expect(cudaStreamQuery(stream) == cudaErrorInvalidResourceHandle,
                       "a destroyed stream");
            }) == "");
}

TEST_CASE("memory of the host is read when the copy's turn comes", "[emulator]") {
    REQUIRE(alone([](int) {
                cudaStream_t stream = new_stream();
                float *pinned = nullptr, pageable = 1;
                works(cudaMallocHost(&pinned, 4));
                *pinned = 1;
                float* const x = on_device(std::vector<float>(2));
                works(cudaLaunchHostFunc(stream, sleep_in_stream, &short_while));
                works(cudaMemcpyAsync(x, &pageable, 4, cudaMemcpyHostToDevice, stream));
                works(cudaMemcpyAsync(x + 1, pinned, 4, cudaMemcpyHostToDevice, stream));
                pageable = *pinned = 2;
                float back[2] = {};
                works(cudaMemcpyAsync(back, x, 8, cudaMemcpyDeviceToHost, stream));
                expect(back[0] == 2, "the pageable value of later");
                expect(back[1] == 2, "the page-locked value of later");
            }) == "");
}

TEST_CASE("copies outside an allocation or of the wrong kind are refused", "[emulator]") {
    REQUIRE(alone([](int) {
                float* const x = on_device(std::vector<float>(4));
                float host[8] = {};
                const auto copy = [&](void* to, const void* from, std::size_t bytes,
                                      cudaMemcpyKind kind) {
                    return cudaMemcpy(to, from, bytes, kind) == cudaErrorInvalidValue;
                };
                expect(copy(x, host, 17, cudaMemcpyHostToDevice), "one byte too many");
                expect(copy(host, host + 4, 4, cudaMemcpyHostToDevice), "no device");
                expect(copy(x, x + 2, 4, cudaMemcpyHostToDevice), "no host");
                works(cudaFree(x));
                expect(copy(host, x, 4, cudaMemcpyDeviceToHost), "freed");
                expect(cudaFree(x) == cudaErrorInvalidValue, "freed twice");
            }) == "");
}

TEST_CASE("device memory is NaN before anything is written", "[emulator]") {
    REQUIRE(alone([](int) {
                cudaStream_t stream = new_stream();
                double* x = nullptr;
                works(cudaMallocAsync(&x, 8, stream));
                double host = 0;
                works(cudaMemcpyAsync(&host, x, 8, cudaMemcpyDeviceToHost, stream));
                expect(host != host, "NaN");
                works(cudaFreeAsync(x, stream));
            }) == "");
}

TEST_CASE("freed memory is reused if the order of streams and events allows it",
          "[emulator]") {
    setenv("EMULATED_MEMORY_REUSE", "100", 1);
    const std::string problem = alone([](int) {
        cudaStream_t first = new_stream(), second = new_stream();
        cudaEvent_t freed = nullptr;
        works(cudaEventCreateWithFlags(&freed, cudaEventDisableTiming));
        const auto allocate = [](cudaStream_t stream, std::size_t count) {
            float* x = nullptr;
            works(cudaMallocAsync(&x, count * sizeof(float), stream));
            return x;
        };
        const auto free_late = [&](float* x) {
            works(cudaLaunchHostFunc(first, sleep_in_stream, &short_while));
            works(cudaFreeAsync(x, first));
        };
        float* x = allocate(first, 4);
        free_late(x);
        expect(allocate(first, 5) != x, "another size");
        expect(allocate(first, 4) == x, "the same stream, before its free has come");
        works(launch(first, set_one, 1, 1, x, 1, 5.0F));
        expect(cudaStreamQuery(first) == cudaErrorNotReady, "it still sleeps");
        works(cudaStreamSynchronize(first));
        expect(on_host(x, 2)[1] == 5, "what was written after the free");

        free_late(x);
        works(cudaEventRecord(freed, first));
        expect(allocate(second, 4) != x, "a stream that knows nothing of it");
        works(cudaStreamWaitEvent(second, freed));
        expect(allocate(second, 4) == x, "a stream that waits for its free");

        works(cudaStreamSynchronize(second));
        works(cudaFreeAsync(x, second));
        works(cudaStreamSynchronize(second));
        expect(allocate(first, 4) == x, "freed before the host asked");
        works(cudaDeviceSynchronize());
    });
    unsetenv("EMULATED_MEMORY_REUSE");
    REQUIRE(problem == "");
}

TEST_CASE("late use of freed memory on another stream meets the new contents",
          "[emulator]") {
    /// Returns the value that the second stream reads from x, and the last value of y.
    const auto use_late = [] {
        cudaStream_t first = new_stream(), second = new_stream();
        float *x = nullptr, *y = nullptr;
        float* const read = on_device(std::vector<float>{0});
        works(cudaMallocAsync(&x, 4, first));
        works(launch(first, set_one, 1, 1, x, 0, 1.0F));
        works(cudaStreamSynchronize(first));
        works(cudaLaunchHostFunc(second, sleep_in_stream, &short_while));
        works(cudaMemcpyAsync(read, x, 4, cudaMemcpyDeviceToDevice, second));
        works(launch(second, set_one, 1, 1, x, 0, 7.0F));
        works(cudaFreeAsync(x, first));
        works(cudaMallocAsync(&y, 4, first));
        works(launch(first, set_one, 1, 1, y, 0, 3.0F));
        works(cudaDeviceSynchronize());
        return std::pair(on_host(read, 1)[0], on_host(y, 1)[0]);
    };
    setenv("EMULATED_MEMORY_REUSE", "100", 1);
    const std::string again = alone([&](int) {
        expect(use_late() == std::pair(3.0F, 7.0F), "wrong numbers on both streams");
    });
    setenv("EMULATED_MEMORY_REUSE", "0", 1);
    dies_with("bytes was written after the free", [&](int) {
        const auto [read, held] = use_late();
        expect(std::isnan(read) && held == 3, "NaN in freed memory");
    });
    unsetenv("EMULATED_MEMORY_REUSE");
    REQUIRE(again == "");
}

TEST_CASE("a device has a limited memory", "[emulator]") {
    setenv("EMULATED_GPU_BYTES", "1048576", 1);
    const std::string problem = alone([](int) {
        cudaStream_t stream = new_stream();
        void *half = nullptr, *more = nullptr;
        works(cudaMallocAsync(&half, 1 << 19, stream));
        expect(cudaMallocAsync(&more, 1 << 20, stream) == cudaErrorMemoryAllocation,
               "out of memory");
        works(cudaFreeAsync(half, stream));
        works(cudaMallocAsync(&more, 1 << 20, stream));
        std::size_t free_bytes = 1, total = 0;
        works(cudaMemGetInfo(&free_bytes, &total));
        expect(free_bytes == 0 && total == 1 << 20, "nothing left");
    });
    unsetenv("EMULATED_GPU_BYTES");
    REQUIRE(problem == "");
}

TEST_CASE("writing outside an allocation ends the process at its free or at its end",
          "[emulator][death]") {
    dies_with("byte 16 of device memory of 16 bytes was written", [](int) {
        float* const x = on_device(std::vector<float>(4));
        works(launch(nullptr, set_one, 1, 1, x, 4, 1.0F));
        works(cudaFree(x));
    });
    dies_with("byte -4 of device memory of 16 bytes was written", [](int) {
        float* const x = on_device(std::vector<float>(4));
        works(launch(nullptr, set_one, 1, 1, x, -1, 1.0F));
        works(cudaDeviceSynchronize());
    });
    dies_with("bytes was written after the free", [](int) {
        float* const x = on_device(std::vector<float>(4));
        works(cudaFree(x));
        works(launch(nullptr, set_one, 1, 1, x, 2, 1.0F));
        works(cudaDeviceSynchronize());
    });
}

TEST_CASE("a fault is reported late, by every call, and only for its device",
          "[emulator]") {
    setenv("EMULATED_FAULT_AT_LAUNCH", "2", 1);
    setenv("EMULATED_FAULT_GPU", "1", 1);
    const std::string problem = alone([](int) {
        const auto gone = [](cudaError_t result, int line = __builtin_LINE()) {
            expect(result == cudaErrorIllegalAddress, "the fault", line);
        };
        float* const elsewhere = on_device(std::vector<float>(1, 1));
        works(cudaSetDevice(1));
        cudaStream_t stream = new_stream();
        cudaEvent_t before = nullptr;
        works(cudaEventCreate(&before));
        float* const x = on_device(std::vector<float>(2, 1));
        works(cudaLaunchHostFunc(stream, sleep_in_stream, &short_while));
        works(launch(stream, set_one, 1, 1, x, 0, 2.0F));
        works(cudaEventRecord(before, stream));
        works(launch(stream, set_one, 1, 1, x, 1, 2.0F));
        works(cudaEventRecord(before, stream));
        expect(cudaEventQuery(before) == cudaErrorNotReady, "it has not come yet");
        gone(cudaStreamSynchronize(stream));
        gone(cudaGetLastError());
        gone(cudaGetLastError());
        gone(cudaEventQuery(before));
        gone(launch(stream, set_one, 1, 1, x, 1, 2.0F));
        void* more = nullptr;
        gone(cudaMalloc(&more, 4));
        gone(cudaFree(x));
        gone(cudaStreamDestroy(stream));
        gone(cudaDeviceSynchronize());
        cublasHandle_t handle = nullptr;
        expect(cublasCreate(&handle) == CUBLAS_STATUS_NOT_INITIALIZED, "no cuBLAS");
        works(cudaSetDevice(0));
        works(launch(nullptr, set_one, 1, 1, elsewhere, 0, 3.0F));
        expect(on_host(elsewhere, 1)[0] == 3, "another device goes on");
    });
    unsetenv("EMULATED_FAULT_AT_LAUNCH");
    unsetenv("EMULATED_FAULT_GPU");
    REQUIRE(problem == "");
}

TEST_CASE("a machine may have no GPU, or too old a driver", "[emulator]") {
    setenv("EMULATED_GPUS", "0", 1);
    const std::string none = alone([](int) {
        int count = 1;
        expect(cudaGetDeviceCount(&count) == cudaErrorNoDevice && count == 0, "none");
        void* x = nullptr;
        expect(cudaMalloc(&x, 4) == cudaErrorNoDevice, "no memory either");
    });
    unsetenv("EMULATED_GPUS");
    REQUIRE(none == "");
    setenv("EMULATED_DRIVER_VERSION", "12040", 1);
    const std::string old = alone([](int) {
        int count = 1;
        expect(cudaGetDeviceCount(&count) == cudaErrorInsufficientDriver, "too old");
    });
    unsetenv("EMULATED_DRIVER_VERSION");
    REQUIRE(old == "");
}

TEST_CASE("a process forked from one that used its GPU cannot use it", "[emulator]") {
    REQUIRE(alone([](int) {
                works(cudaSetDevice(0));
                expect(alone([](int) {
                           int count = 0;
                           expect(
                               cudaGetDeviceCount(&count) == cudaErrorInitializationError,
                               "refused");
                       }) == "",
                       "the child");
            }) == "");
}

TEST_CASE("products equal loops, for all transposes, and need no C", "[emulator]") {
    REQUIRE(alone([](int) { check_products<float>(); }) == "");
    REQUIRE(alone([](int) { check_products<double>(); }) == "");
}

TEST_CASE("products in TF32 round their operands to 10 bits, ties away from zero",
          "[emulator]") {
    REQUIRE(alone([](int) {
                cublasHandle_t handle = nullptr;
                expect(cublasCreate(&handle) == CUBLAS_STATUS_SUCCESS, "a handle");
                const float step = 0x1p-10F;  // from 1 to the next number in TF32
                const std::vector<float> a{1 + step / 2, -1 - step / 2, 1 + step / 2.1F,
                                           0x1.fffp0F,   INFINITY,      0x1p-130F};
                const std::vector<float> tf32{1 + step, -1 - step, 1,
                                              2,        INFINITY,  0x1p-130F};
                const int m = static_cast<int>(a.size());
                const float one = 1, zero = 0;
                const auto product = [&](int math) {
                    float* const c = on_device(std::vector<float>(a.size()));
                    expect(cublasSetMathMode(handle, static_cast<cublasMath_t>(math)) ==
                               CUBLAS_STATUS_SUCCESS,
                           "a mode");
                    expect(gemm(handle, CUBLAS_OP_N, CUBLAS_OP_N, m, 1, 1, &one,
                                on_device(a), m, on_device(std::vector<float>{1}), 1,
                                &zero, c, m) == CUBLAS_STATUS_SUCCESS,
                           "a product");
                    return on_host(c, a.size());
                };
                const int whole = CUBLAS_MATH_DISALLOW_REDUCED_PRECISION_REDUCTION;
                expect(product(CUBLAS_DEFAULT_MATH) == a, "f32");
                expect(product(CUBLAS_DEFAULT_MATH | whole) == a, "f32");
                expect(product(CUBLAS_TF32_TENSOR_OP_MATH) == tf32, "TF32");
                expect(product(CUBLAS_TF32_TENSOR_OP_MATH | whole) == tf32, "TF32");
            }) == "");
}

TEST_CASE("matrices of a batch of products are one stride apart", "[emulator]") {
    REQUIRE(alone([](int) { check_batches<float>(); }) == "");
    REQUIRE(alone([](int) { check_batches<double>(); }) == "");
}
