#pragma once

#include <cmath>
#include <concepts>
#include <cstdint>
#include <type_traits>

#include "gpu/kernels/numbers.hpp"

namespace lockstep::gpu {

/// A template argument, as a value.
template <int kValue>
using Constant = std::integral_constant<int, kValue>;

/// Elements that a thread loads or stores with one instruction.
template <typename T, int kWidth>
struct alignas(sizeof(T) * kWidth) Pack {
    T value[kWidth];
};

/// Elements in 16 bytes, the maximum that one instruction moves. bf16 has the same number
/// of elements as f32, so its packs have 8 bytes.
template <typename S>
inline constexpr int kFullWidth = 16 / static_cast<int>(sizeof(Computed<S>));

/// Returns whether each address is aligned for a full pack; views may begin anywhere.
template <typename... T>
bool aligned(const T*... data) {
    return ((reinterpret_cast<std::uintptr_t>(data) % 16 == 0) && ...);
}
template <std::same_as<Numbers>... N>
bool aligned(const N&... numbers) {
    return aligned(numbers.data...);
}

/// Calls `body` with a constant: the size of a full pack if `full`, otherwise 1.
template <typename T, typename Body>
void with_width(bool full, const Body& body) {
    if (full)
        body(Constant<kFullWidth<T>>());
    else
        body(Constant<1>());
}

/// Returns a b + c, rounded once on a GPU. Kernels are compiled with -fmad=false, because
/// nvcc might fuse a product with a sum in one instance of a kernel and not in another;
/// then their bits would differ. Kernels that need a fused multiply-add call this one.
template <typename T>
__device__ T multiply_add(T a, T b, T c) {
#ifdef __CUDA_ARCH__
    return std::fma(a, b, c);
#else
    return a * b + c;
#endif
}

constexpr std::int64_t divided_up(std::int64_t value, std::int64_t divisor) {
    return (value + divisor - 1) / divisor;
}

/// A matrix, and how its rows can be loaded.
struct MatrixShape {
    std::int64_t rows;
    std::int64_t columns;
    bool vectors;  ///< whether all rows of all operands begin at full packs
};

/// Returns the numbers in another type, rounded if that type has fewer digits.
template <typename To, typename From, int kWidth>
__device__ Pack<To, kWidth> converted(const Pack<From, kWidth>& from) {
    if constexpr (std::is_same_v<To, From>) {
        return from;
    } else {
        Pack<To, kWidth> to;
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane)
            to.value[lane] = static_cast<To>(from.value[lane]);
        return to;
    }
}

// One instruction moves a whole pack; its address must be a multiple of its size.
#ifdef __CUDACC__
template <typename Whole, typename S>
__device__ Whole load_whole(const S* from) {
    return *reinterpret_cast<const Whole*>(from);
}
template <typename Whole, typename S>
__device__ void store_whole(S* to, const Whole& pack) {
    *reinterpret_cast<Whole*>(to) = pack;
}
#else
using emulated::load_whole;
using emulated::store_whole;
#endif

template <int kWidth, typename S>
__device__ Pack<Computed<S>, kWidth> load(const S* from, bool aligned) {
    if constexpr (kWidth > 1) {
        if (!aligned) {
            Pack<Computed<S>, kWidth> pack;
#pragma unroll
            for (int lane = 0; lane < kWidth; ++lane)
                pack.value[lane] = from[lane];
            return pack;
        }
    }
    return converted<Computed<S>>(load_whole<Pack<S, kWidth>>(from));
}

/// Returns a last, partial pack: the elements from `begin` to `elements`, then `nothing`.
template <int kWidth, typename S>
__device__ Pack<Computed<S>, kWidth> load_rest(const S* from, std::int64_t begin,
                                               std::int64_t elements,
                                               Computed<S> nothing = 0) {
    Pack<Computed<S>, kWidth> pack;
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane)
        pack.value[lane] =
            begin + lane < elements ? Computed<S>{from[begin + lane]} : nothing;
    return pack;
}

/// Takes two packs that follow each other. Returns the pack that begins `shift` elements
/// (less than a pack) into the first one. Selects among registers, in one step for each
/// bit of `shift`, because an array with a variable index would be in memory.
template <typename T, int kWidth>
__device__ Pack<T, kWidth> shifted(const Pack<T, kWidth>& first,
                                   const Pack<T, kWidth>& second, int shift) {
    T all[2 * kWidth];
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
        all[lane] = first.value[lane];
        all[kWidth + lane] = second.value[lane];
    }
#pragma unroll
    for (int step = kWidth / 2; step > 0; step /= 2) {
#pragma unroll
        for (int i = 0; i < kWidth - 1 + step; ++i)
            all[i] = (shift & step) != 0 ? all[i + step] : all[i];
    }
    Pack<T, kWidth> pack;
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane)
        pack.value[lane] = all[lane];
    return pack;
}

template <int kWidth, typename S>
__device__ void store(S* to, const Pack<Computed<S>, kWidth>& pack, bool aligned) {
    if constexpr (kWidth > 1) {
        if (!aligned) {
#pragma unroll
            for (int lane = 0; lane < kWidth; ++lane)
                to[lane] = static_cast<S>(pack.value[lane]);
            return;
        }
    }
    store_whole(to, converted<S>(pack));
}

/// Stores the first `count` elements of the pack.
template <int kWidth, typename S>
__device__ void store_first(S* to, const Pack<Computed<S>, kWidth>& pack, int count,
                            bool aligned) {
    if (count == kWidth) {
        store(to, pack, aligned);
        return;
    }
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane)
        if (lane < count) to[lane] = static_cast<S>(pack.value[lane]);
}

}  // namespace lockstep::gpu
