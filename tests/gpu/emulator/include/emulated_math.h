// Vectors and arithmetic that a kernel may use without an include.
#pragma once

#include <bit>
#include <cmath>
#include <cstdint>
#include <type_traits>

struct alignas(8) float2 {
    float x, y;
};
struct float3 {
    float x, y, z;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(16) double2 {
    double x, y;
};
struct alignas(16) double4 {
    double x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
struct alignas(16) uint4 {
    unsigned x, y, z, w;
};

inline float2 make_float2(float x, float y) {
    return {x, y};
}
inline float3 make_float3(float x, float y, float z) {
    return {x, y, z};
}
inline float4 make_float4(float x, float y, float z, float w) {
    return {x, y, z, w};
}
inline double2 make_double2(double x, double y) {
    return {x, y};
}
inline double4 make_double4(double x, double y, double z, double w) {
    return {x, y, z, w};
}
inline int2 make_int2(int x, int y) {
    return {x, y};
}
inline int4 make_int4(int x, int y, int z, int w) {
    return {x, y, z, w};
}
inline uint2 make_uint2(unsigned x, unsigned y) {
    return {x, y};
}
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) {
    return {x, y, z, w};
}

inline float rsqrtf(float x) {
    return 1 / std::sqrt(x);
}
inline float rsqrt(float x) {
    return 1 / std::sqrt(x);
}
inline double rsqrt(double x) {
    return 1 / std::sqrt(x);
}
inline float __expf(float x) {
    return std::exp(x);
}
inline float __logf(float x) {
    return std::log(x);
}
inline float __fdividef(float x, float y) {
    return x / y;
}
inline float __fmaf_rn(float x, float y, float z) {
    return std::fma(x, y, z);
}
inline double __fma_rn(double x, double y, double z) {
    return std::fma(x, y, z);
}
inline float __fadd_rn(float x, float y) {
    return x + y;
}
inline double __dadd_rn(double x, double y) {
    return x + y;
}
inline float __fmul_rn(float x, float y) {
    return x * y;
}
inline double __dmul_rn(double x, double y) {
    return x * y;
}

inline int __float_as_int(float x) {
    return std::bit_cast<int>(x);
}
inline float __int_as_float(int x) {
    return std::bit_cast<float>(x);
}
inline int __popc(unsigned x) {
    return std::popcount(x);
}
inline int __clz(int x) {
    return std::countl_zero(static_cast<unsigned>(x));
}
inline int __ffs(int x) {
    return x == 0 ? 0 : std::countr_zero(static_cast<unsigned>(x)) + 1;
}

template <typename T>
requires std::is_arithmetic_v<T>
constexpr T min(T x, T y) {
    return y < x ? y : x;
}
template <typename T>
requires std::is_arithmetic_v<T>
constexpr T max(T x, T y) {
    return x < y ? y : x;
}

template <typename T>
T __ldg(const T* pointer) {
    return *pointer;
}
template <typename T>
T __ldcs(const T* pointer) {
    return *pointer;
}
template <typename T>
void __stcs(T* pointer, T value) {
    *pointer = value;
}

// Atomic, because other streams may use the same memory at the same time.

template <typename T>
requires std::is_integral_v<T> T atomicAdd(T* address, T value) {
    return __atomic_fetch_add(address, value, __ATOMIC_RELAXED);
}

template <typename T>
requires std::is_floating_point_v<T> T atomicAdd(T* address, T value) {
    T old;
    __atomic_load(address, &old, __ATOMIC_RELAXED);
    T wanted = old + value;
    while (!__atomic_compare_exchange(address, &old, &wanted, true, __ATOMIC_RELAXED,
                                      __ATOMIC_RELAXED))
        wanted = old + value;
    return old;
}

template <typename T>
requires std::is_integral_v<T> T atomicExch(T* address, T value) {
    return __atomic_exchange_n(address, value, __ATOMIC_RELAXED);
}

template <typename T>
requires std::is_integral_v<T> T atomicCAS(T* address, T expected, T value) {
    __atomic_compare_exchange_n(address, &expected, value, false, __ATOMIC_RELAXED,
                                __ATOMIC_RELAXED);
    return expected;
}

template <typename T>
requires std::is_integral_v<T> T atomicMax(T* address, T value) {
    T old = __atomic_load_n(address, __ATOMIC_RELAXED);
    while (old < value &&
           !__atomic_compare_exchange_n(address, &old, value, true, __ATOMIC_RELAXED,
                                        __ATOMIC_RELAXED)) {
    }
    return old;
}
