// Tests kernels on the emulator. Each test runs in its own process.

#include <csignal>

#include "tests/catch.hpp"
#include "tests/gpu/emulator/gpu_test.hpp"

using namespace emulated::test;

namespace {

constexpr int kBlock = 96;

/// One sum for each block, by shuffles within warps and shared memory between warps.
__global__ void block_sums(const float* x, float* sums, int n) {
    __shared__ float of_warp[32];
    const int i = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x);
    float sum = i < n ? x[i] : 0;
    for (int step = 16; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffff, sum, static_cast<unsigned>(step));
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x != 0) return;
    float total = 0;
    for (unsigned warp = 0; warp < blockDim.x / 32; ++warp)
        total += of_warp[warp];
    sums[blockIdx.x] = total;
}

/// Wrong on purpose: thread 0 reads before the other threads have written.
__global__ void sum_without_barrier(const float* x, float* sum) {
    __shared__ float copy[kBlock];
    copy[threadIdx.x] = x[threadIdx.x];
    if (threadIdx.x != 0) return;
    *sum = 0;
    for (float& value : copy) {
        *sum += value;
        value = 0;
    }
}

/// Wrong on purpose: assumes that blocks run in order.
__global__ void count_blocks(int* next, int* in_order) {
    if (*next == static_cast<int>(blockIdx.x)) ++*in_order;
    ++*next;
}

__global__ void copy_pairs(float* to, const float* from) {
    struct Pair {
        float first, second;
    };
    emulated::store_whole(to, emulated::load_whole<Pair>(from));
}

__global__ void half_a_barrier() {
    if (threadIdx.x < 32) __syncthreads();
}

__global__ void half_a_warp(int* out) {
    if (threadIdx.x < 16) *out = __shfl_sync(0xffffffff, 1, 0);
}

__global__ void lanes(int* out) {
    const int lane = static_cast<int>(threadIdx.x);
    const double doubled = __shfl_xor_sync(0xffffffffU, 2.0 * lane, 1);
    const int left = __shfl_up_sync(0xffffffffU, lane, 1);
    const int third = __shfl_sync(0xffffffffU, lane, 3, 8);
    const unsigned odd = __ballot_sync(0xffffffffU, lane % 2);
    const int any = __any_sync(0xffffffffU, lane == 5);
    const int all = __all_sync(0xffffffffU, lane == 5);
    out[lane] = static_cast<int>(doubled) + 100 * left + 10000 * third;
    if (lane == 0) out[32] = odd == 0xaaaaaaaaU && any && !all;
}

__global__ void places(int* out) {
    const dim3 at =
        threadIdx.z * blockDim.y * blockDim.x + threadIdx.y * blockDim.x + threadIdx.x;
    const unsigned block = blockIdx.y * gridDim.x + blockIdx.x;
    out[block * blockDim.x * blockDim.y * blockDim.z + at.x] += 1;
}

using Bf16Matrix = std::uint16_t[16][16];

/// c (16 x 8) = a (16 x 16) b (16 x 8) of bf16. In memory, b is stored by columns or, if
/// `transposed`, by rows. Each thread copies 32 bytes, so that a and b get into the
/// block's memory.
__global__ void multiply_matrices(float* c, const Bf16Matrix* matrices, bool transposed,
                                  bool waits) {
    auto& memory = emulated::block_memory<Bf16Matrix[2]>();
    const std::size_t lane = threadIdx.x;
    for (const std::size_t half : {0, 8}) {
        emulated::start_copy(&memory[lane / 16][lane % 16][half],
                             &matrices[lane / 16][lane % 16][half], true);
    }
    emulated::end_group_of_copies();
    emulated::end_group_of_copies();
    if (waits) emulated::wait_for_all_but_last_group();
    __syncthreads();
    std::uint32_t a[4], b[4];
    emulated::load_matrices(a, &memory[0][lane % 16][lane / 16 * 8]);
    if (transposed)
        emulated::load_transposed(b, &memory[1][lane % 16][lane / 16 * 8]);
    else
        emulated::load_matrices(b,
                                &memory[1][lane % 8 + lane / 16 * 8][lane / 8 % 2 * 8]);
    float sums[4] = {};
    emulated::multiply_add(sums, a, b[0], b[1]);
    for (std::size_t k = 0; k < 4; ++k)
        c[(lane / 4 + k / 2 * 8) * 8 + lane % 4 * 2 + k % 2] = sums[k];
}

__global__ void copy_behind() {
    emulated::start_copy(static_cast<char*>(emulated::memory_of_block()) + 32, nullptr,
                         false);
}

template <typename... Parameters, typename... Arguments>
cudaError_t launch_with_bytes(std::size_t bytes, void (*kernel)(Parameters...),
                              Arguments... arguments) {
    cudaLaunchConfig_t config{};
    config.gridDim = dim3(1);
    config.blockDim = dim3(32);
    config.dynamicSmemBytes = bytes;
    return cudaLaunchKernelEx(&config, kernel, arguments...);
}

constexpr std::size_t kProduct = std::size_t{16} * 8;

/// Returns the result of multiply_matrices() for small whole numbers.
std::vector<float> multiplied(bool transposed, bool waits) {
    std::vector<std::uint16_t> matrices(std::size_t{2} * 16 * 16);
    for (std::size_t i = 0; i < matrices.size(); ++i)
        matrices[i] = static_cast<std::uint16_t>(
            std::bit_cast<std::uint32_t>(static_cast<float>(i % 7)) >> 16);
    std::uint16_t* const input = on_device(matrices);
    float* const output = on_device(std::vector<float>(kProduct));
    works(launch_with_bytes(matrices.size() * 2, multiply_matrices, output,
                            reinterpret_cast<const Bf16Matrix*>(input), transposed,
                            waits));
    return on_host(output, kProduct);
}

void dies_with(const char* text, lockstep::FunctionRef<void(int)> body) {
    const std::vector<Ended> ended = in_processes(1, body);
    INFO(ended[0].errors);
    REQUIRE(ended[0].status == -SIGABRT);
    REQUIRE(ended[0].errors.find(text) != std::string::npos);
}

}  // namespace

TEST_CASE("a block adds up by shuffles and shared memory", "[emulator]") {
    REQUIRE(alone([](int) {
                const int n = 2 * kBlock + 7;
                std::vector<float> x(static_cast<std::size_t>(n));
                for (std::size_t i = 0; i < x.size(); ++i)
                    x[i] = static_cast<float>(i);
                float* const input = on_device(x);
                float* const sums = on_device(std::vector<float>(3));
                works(launch(nullptr, block_sums, 3, kBlock, input, sums, n));
                const std::vector<float> got = on_host(sums, 3);
                expect(got[0] == 95 * 48, "sum of the first block");
                expect(got[1] == 95 * 48 + 96 * 96, "sum of the second block");
                expect(got[2] == 192 * 7 + 21, "sum of the last block");
            }) == "");
}

TEST_CASE("a missing barrier gives wrong numbers", "[emulator]") {
    REQUIRE(alone([](int) {
                float* const input = on_device(std::vector<float>(kBlock, 1));
                float* const sum = on_device(std::vector<float>(1));
                works(launch(nullptr, sum_without_barrier, 1, kBlock, input, sum));
                expect(on_host(sum, 1)[0] != kBlock, "the wrong sum");
            }) == "");
}

TEST_CASE("blocks do not run in order", "[emulator]") {
    REQUIRE(alone([](int) {
                int* const counts = on_device(std::vector<int>(2));
                works(launch(nullptr, count_blocks, 64, 1, counts, counts + 1));
                const std::vector<int> got = on_host(counts, 2);
                expect(got[0] == 64, "all blocks");
                expect(got[1] < 32, "few in order");
            }) == "");
}

TEST_CASE("lanes exchange the right values", "[emulator]") {
    REQUIRE(alone([](int) {
                int* const out = on_device(std::vector<int>(33));
                works(launch(nullptr, lanes, 1, 32, out));
                const std::vector<int> got = on_host(out, 33);
                for (int lane = 0; lane < 32; ++lane)
                    expect(got[static_cast<std::size_t>(lane)] ==
                               2 * (lane ^ 1) + 100 * (lane > 0 ? lane - 1 : 0) +
                                   10000 * (lane / 8 * 8 + 3),
                           "each lane's value");
                expect(got[32] == 1, "votes");
            }) == "");
}

TEST_CASE("tensor cores multiply values copied to shared memory", "[emulator]") {
    for (const bool transposed : {false, true})
        REQUIRE(
            alone([&](int) {
                std::vector<float> expected(kProduct);
                for (std::size_t i = 0; i < 16; ++i)
                    for (std::size_t j = 0; j < 8; ++j)
                        for (std::size_t k = 0; k < 16; ++k) {
                            const std::size_t at = transposed ? k * 16 + j : j * 16 + k;
                            expected[i * 8 + j] +=
                                static_cast<float>((i * 16 + k) % 7 * ((256 + at) % 7));
                        }
                expect(multiplied(transposed, true) == expected, "the product");
                expect(multiplied(transposed, false) != expected, "what was not awaited");
            }) == "");
}

TEST_CASE("a block shares no more memory than it was given", "[emulator]") {
    REQUIRE(alone([](int) {
                const std::size_t usual = 48 << 10;
                expect(launch_with_bytes(usual, copy_behind) == cudaSuccess, "usual");
                expect(launch_with_bytes(usual + 1, copy_behind) == cudaErrorInvalidValue,
                       "not asked for");
                const auto asked = cudaFuncAttributeMaxDynamicSharedMemorySize;
                works(cudaFuncSetAttribute(copy_behind, asked, 99 << 10));
                works(launch_with_bytes(99 << 10, copy_behind));
                expect(cudaFuncSetAttribute(copy_behind, asked, 100 << 10) ==
                           cudaErrorInvalidValue,
                       "more than there is");
            }) == "");
    dies_with("leaves the block's memory", [](int) {
        works(launch_with_bytes(32, copy_behind));
        works(cudaDeviceSynchronize());
    });
}

TEST_CASE("every thread of every block runs once", "[emulator]") {
    REQUIRE(alone([](int) {
                constexpr std::size_t kAll = std::size_t{6} * 24;
                int* const out = on_device(std::vector<int>(kAll));
                cudaLaunchConfig_t config{};
                config.gridDim = dim3(2, 3);
                config.blockDim = dim3(4, 3, 2);
                works(cudaLaunchKernelEx(&config, places, out));
                expect(on_host(out, kAll) == std::vector<int>(kAll, 1), "ones");
            }) == "");
}

TEST_CASE("launches that no GPU accepts are refused", "[emulator]") {
    REQUIRE(alone([](int) {
                expect(launch(nullptr, half_a_barrier, 0, 32) ==
                           cudaErrorInvalidConfiguration,
                       "no blocks");
                expect(launch(nullptr, half_a_barrier, 1, 1025) ==
                           cudaErrorInvalidConfiguration,
                       "1025 threads");
                expect(cudaGetLastError() == cudaErrorInvalidConfiguration, "last");
                expect(cudaGetLastError() == cudaSuccess, "forgotten");
            }) == "");
}

TEST_CASE("a vector's address must be a multiple of its size, or the process ends",
          "[emulator]") {
    const auto copies = [](int to, int from) {
        float* const x = on_device(std::vector<float>{1, 2, 3, 4, 5, 6});
        works(launch(nullptr, copy_pairs, 1, 1, x + to, x + from));
        works(cudaDeviceSynchronize());
        return on_host(x, 6);
    };
    REQUIRE(alone([&](int) {
                expect(copies(4, 2) == std::vector<float>{1, 2, 3, 4, 3, 4}, "a pair");
            }) == "");
    dies_with("block 0 of 1: an instruction moves 8 bytes", [&](int) { copies(4, 1); });
    dies_with("not a multiple of 8", [&](int) { copies(3, 2); });
}

TEST_CASE("a barrier that not all threads reach ends the process", "[emulator]") {
    dies_with("half_a_barrier", [](int) {
        works(launch(nullptr, half_a_barrier, 1, 64));
        works(cudaDeviceSynchronize());
    });
    dies_with("32 have ended", [](int) {
        works(launch(nullptr, half_a_barrier, 1, 64));
        works(cudaDeviceSynchronize());
    });
}

TEST_CASE("a shuffle that not all its lanes reach ends the process", "[emulator]") {
    dies_with("16 wait for their warp at", [](int) {
        works(launch(nullptr, half_a_warp, 1, 32, on_device(std::vector<int>(1))));
        works(cudaDeviceSynchronize());
    });
}
