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

/// Elements in 16 bytes, the most that one instruction moves; half of them are moved for
/// bf16, which has as many as f32.
template <typename S>
inline constexpr int kFullWidth = 16 / static_cast<int>(sizeof(Computed<S>));

/// Returns whether each address can be that of a full pack; views may begin anywhere.
template <typename... T>
bool aligned(const T*... data) {
    return ((reinterpret_cast<std::uintptr_t>(data) % 16 == 0) && ...);
}
template <std::same_as<Numbers>... N>
bool aligned(const N&... of) {
    return aligned(of.data...);
}

/// with(kWidth), a constant: the elements of a full pack if `full`, or else 1.
template <typename T, typename With>
void with_width(bool full, const With& with) {
    if (full)
        with(Constant<kFullWidth<T>>());
    else
        with(Constant<1>());
}

/// a b + c, rounded once on a GPU. Kernels are compiled with -fmad=false: nvcc fuses no
/// product with a sum by itself, as it would in one instance of a kernel and not in
/// another, whose bits would then differ. Where arithmetic takes the time, they ask.
template <typename T>
__device__ T multiply_add(T a, T b, T c) {
#ifdef __CUDA_ARCH__
    return std::fma(a, b, c);
#else
    return a * b + c;
#endif
}

constexpr std::int64_t divided_up(std::int64_t value, std::int64_t by) {
    return (value + by - 1) / by;
}

/// A matrix, and how its rows can be loaded.
struct MatrixShape {
    std::int64_t rows;
    std::int64_t columns;
    bool vectors;  ///< whether all rows of all operands begin at full packs
};

/// Returns the numbers in another type, rounded if that has fewer digits.
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

// One instruction for all of a pack, whose address must be a multiple of its size.
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

/// Returns what is left of `elements` from `begin` on, if that is less than a pack, and
/// then what stands for nothing.
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

/// Returns the pack that begins `by` elements, less than a pack, into the first of two
/// that follow each other. A step for each bit of `by` selects among registers, since an
/// index into them would send them through memory.
template <typename T, int kWidth>
__device__ Pack<T, kWidth> shifted(const Pack<T, kWidth>& first,
                                   const Pack<T, kWidth>& second, int by) {
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
            all[i] = (by & step) != 0 ? all[i + step] : all[i];
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

/// Stores the first `count` elements of the pack, or all.
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
