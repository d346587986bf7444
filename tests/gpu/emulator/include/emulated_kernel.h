// Everything that a kernel's source can use without an include: its place in the grid,
// barriers, exchanges within a warp, vectors, and nvcc's built-in functions.
#pragma once

#include <bit>
#include <cstdint>
#include <cstring>
#include <functional>
#include <type_traits>

#include "emulated_math.h"
#include "emulated_types.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline __attribute__((always_inline))
#define __launch_bounds__(...)
#define __grid_constant__
// A stream's thread runs one block at a time, so the blocks can share a variable.
#define __shared__ static thread_local

extern constinit thread_local uint3 threadIdx;
extern constinit thread_local uint3 blockIdx;
extern constinit thread_local dim3 blockDim;
extern constinit thread_local dim3 gridDim;
constexpr int warpSize = 32;

namespace emulated {

/// A line at which a kernel waits for other threads.
struct Place {
    const char* file = nullptr;
    int line = 0;
    bool operator==(const Place&) const = default;
};

enum class WarpCall : std::uint8_t { sync, shuffle, ballot, together };

cudaError_t launch(const cudaLaunchConfig_t& config, const void* kernel,
                   std::function<void()> thread);

/// Waits for all threads of the block.
void block_barrier(Place place);
/// Waits for the lanes of `mask`. A shuffle returns the value of `source`. A ballot
/// returns the mask of the lanes with values that are not 0.
std::uint64_t warp_exchange(WarpCall call, unsigned mask, std::uint64_t value, int source,
                            Place place);
/// Returns the place of this thread in its warp.
int lane();

/// Ends the process if the address is not a multiple of `bytes`, the number of bytes that
/// one instruction moves.
void require_vector_at(const void* address, std::size_t bytes);

template <typename Whole>
Whole load_whole(const void* from) {
    require_vector_at(from, sizeof(Whole));
    Whole whole;
    std::memcpy(static_cast<void*>(&whole), from, sizeof whole);
    return whole;
}
template <typename Whole>
void store_whole(void* to, const Whole& whole) {
    require_vector_at(to, sizeof whole);
    std::memcpy(to, static_cast<const void*>(&whole), sizeof whole);
}

template <typename T>
T shuffle(unsigned mask, T value, int source, Place place) {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= 8);
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = warp_exchange(WarpCall::shuffle, mask, bits, source, place);
    std::memcpy(static_cast<void*>(&value), &bits, sizeof(T));
    return value;
}

}  // namespace emulated

inline void __syncthreads(const char* file = __builtin_FILE(),
                          int line = __builtin_LINE()) {
    emulated::block_barrier({file, line});
}

inline void __syncwarp(unsigned mask = 0xffffffff, const char* file = __builtin_FILE(),
                       int line = __builtin_LINE()) {
    emulated::warp_exchange(emulated::WarpCall::sync, mask, 0, 0, {file, line});
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32,
              const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const int first = emulated::lane() & ~(width - 1);
    return emulated::shuffle(mask, value, first + (source & (width - 1)), {file, line});
}

template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32,
                 const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const int lane = emulated::lane();
    const int source = lane - static_cast<int>(delta);
    return emulated::shuffle(mask, value, source < (lane & ~(width - 1)) ? lane : source,
                             {file, line});
}

template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32,
                   const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const int lane = emulated::lane();
    const int source = lane + static_cast<int>(delta);
    return emulated::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source,
                             {file, line});
}

template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int lane_mask, int width = 32,
                  const char* file = __builtin_FILE(), int line = __builtin_LINE()) {
    const int lane = emulated::lane();
    const int source = lane ^ lane_mask;
    return emulated::shuffle(mask, value, source > (lane | (width - 1)) ? lane : source,
                             {file, line});
}

inline unsigned __ballot_sync(unsigned mask, int predicate,
                              const char* file = __builtin_FILE(),
                              int line = __builtin_LINE()) {
    return static_cast<unsigned>(emulated::warp_exchange(
        emulated::WarpCall::ballot, mask, predicate != 0, 0, {file, line}));
}

inline int __any_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
    return __ballot_sync(mask, predicate, file, line) != 0;
}

inline int __all_sync(unsigned mask, int predicate, const char* file = __builtin_FILE(),
                      int line = __builtin_LINE()) {
    return __ballot_sync(mask, !predicate, file, line) == 0;
}

inline void __threadfence() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}

inline void __threadfence_block() {
    __atomic_thread_fence(__ATOMIC_SEQ_CST);
}
