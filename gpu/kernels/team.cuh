#pragma once

#include <cstdint>
#include <limits>

namespace lockstep::gpu {

struct Plus {
    template <typename A>
    __device__ static A identity() {
        return A{0};
    }
    template <typename A>
    __device__ A operator()(A a, A b) const {
        return a + b;
    }
};

struct Larger {
    template <typename A>
    __device__ A operator()(A a, A b) const {
        return a < b ? b : a;
    }
};

struct Smaller {
    template <typename A>
    __device__ static A identity() {
        return std::numeric_limits<A>::max();
    }
    template <typename A>
    __device__ A operator()(A a, A b) const {
        return b < a ? b : a;
    }
};

inline constexpr int kWarp = 32;
inline constexpr unsigned kAllLanes = 0xffffffff;

/// Returns the value of the lane whose number differs by `step`, a power of two.
template <typename A>
__device__ A of_other_lane(A value, int step) {
    return __shfl_xor_sync(kAllLanes, value, step);
}

/// Combines the values of a team of threads in a fixed order. Every thread gets the same
/// bits, because `op` is commutative. A team is a warp or the whole block.
template <int kTeam, typename A, typename Op>
__device__ A combined(A value, const Op& op) {
#pragma unroll
    for (int step = kWarp / 2; step > 0; step /= 2)
        value = op(value, of_other_lane(value, step));
    if constexpr (kTeam > kWarp) {
        __shared__ A of_warp[kTeam / kWarp];
        if (threadIdx.x % kWarp == 0) of_warp[threadIdx.x / kWarp] = value;
        __syncthreads();
        value = of_warp[0];
#pragma unroll
        for (int warp = 1; warp < kTeam / kWarp; ++warp)
            value = op(value, of_warp[warp]);
        // The next call writes to the same places.
        __syncthreads();
    }
    return value;
}

}  // namespace lockstep::gpu
