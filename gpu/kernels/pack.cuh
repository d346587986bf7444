#pragma once

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

/// Elements in 16 bytes, the most that one instruction moves.
template <typename T>
inline constexpr int kFullWidth = 16 / static_cast<int>(sizeof(T));

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

constexpr std::int64_t divided_up(std::int64_t value, std::int64_t by) {
    return (value + by - 1) / by;
}

/// A matrix, and how its rows can be loaded.
struct MatrixShape {
    std::int64_t rows;
    std::int64_t columns;
    bool vectors;  ///< whether all rows of all operands begin at full packs
};

template <int kWidth, typename T>
__device__ Pack<T, kWidth> load(const T* from, bool aligned) {
    if constexpr (kWidth > 1) {
        if (!aligned) {
            Pack<T, kWidth> pack;
#pragma unroll
            for (int lane = 0; lane < kWidth; ++lane)
                pack.value[lane] = from[lane];
            return pack;
        }
    }
    return *reinterpret_cast<const Pack<T, kWidth>*>(from);
}

/// Returns what is left at the end of `elements`, less than a pack, and then zeros.
template <int kWidth, typename T>
__device__ Pack<T, kWidth> load_rest(const T* from, std::int64_t begin,
                                     std::int64_t elements) {
    Pack<T, kWidth> pack;
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane)
        pack.value[lane] = begin + lane < elements ? from[begin + lane] : T{0};
    return pack;
}

template <int kWidth, typename T>
__device__ void store(T* to, const Pack<T, kWidth>& pack, bool aligned) {
    if constexpr (kWidth > 1) {
        if (!aligned) {
#pragma unroll
            for (int lane = 0; lane < kWidth; ++lane)
                to[lane] = pack.value[lane];
            return;
        }
    }
    *reinterpret_cast<Pack<T, kWidth>*>(to) = pack;
}

}  // namespace lockstep::gpu
