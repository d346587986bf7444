#pragma once

#include <cstddef>
#include <type_traits>
#include <utility>

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"

namespace lockstep::gpu {

// Operations that are computed element by element. What one computes is a function
// object: f(a[i], b[i], …) of one element of each operand, by reference. Its static
// constants say how many operands, the first ones, are written (int kWritten), and
// whether the first is read too (bool kReadsFirst).
//
// Operands may be the same memory, since a thread has read its elements of all before it
// writes any.

inline constexpr int kEachThreads = 256;

template <typename T, int kOperands>
struct Operands {
    T* data[kOperands];
};

template <typename F, typename T, int kWidth, std::size_t... k>
__device__ void apply(const F& f, Pack<T, kWidth>* operands, int lane,
                      std::index_sequence<k...>) {
    f(operands[k].value[lane]...);
}

template <int kWidth, int kUnroll, typename F, typename T, int kOperands>
__global__ void __launch_bounds__(kEachThreads)
    each_kernel(std::int64_t elements, F f, Operands<T, kOperands> operands) {
    constexpr auto kAll = std::make_index_sequence<kOperands>();
    const std::int64_t packs = elements / kWidth;
    const std::int64_t first =
        std::int64_t{blockIdx.x} * (kEachThreads * kUnroll) + threadIdx.x;
    Pack<T, kWidth> values[kUnroll][kOperands];

    // All loads are under way before the first value is needed.
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t pack = first + u * kEachThreads;
#pragma unroll
        for (int k = F::kReadsFirst ? 0 : 1; k < kOperands; ++k)
            if (pack < packs)
                values[u][k] = load<kWidth>(operands.data[k] + pack * kWidth, true);
    }
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t pack = first + u * kEachThreads;
        if (pack >= packs) break;
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane)
            apply(f, values[u], lane, kAll);
#pragma unroll
        for (int k = 0; k < F::kWritten; ++k)
            store(operands.data[k] + pack * kWidth, values[u][k], true);
    }

    // The rest that fills no pack, an element a thread.
    if constexpr (kWidth > 1) {
        const std::int64_t at = packs * kWidth + threadIdx.x;
        if (blockIdx.x != 0 || at >= elements) return;
        Pack<T, 1> last[kOperands];
        for (int k = F::kReadsFirst ? 0 : 1; k < kOperands; ++k)
            last[k].value[0] = operands.data[k][at];
        apply(f, last, 0, kAll);
        for (int k = 0; k < F::kWritten; ++k)
            operands.data[k][at] = last[k].value[0];
    }
}

template <int kWidth, typename F, typename T, int kOperands>
void launch_each(cudaStream_t stream, std::int64_t elements, const F& f,
                 const Operands<T, kOperands>& operands) {
    // Enough bytes under way a thread to hide the latency of memory.
    constexpr int kPacks = kOperands >= 4 ? 1 : 4 / kOperands;
    constexpr int kUnroll = kPacks * kFullWidth<T> / kWidth;
    const std::int64_t blocks =
        divided_up(divided_up(elements, kWidth), kEachThreads * kUnroll);
    launch(stream, each_kernel<kWidth, kUnroll, F, T, kOperands>,
           static_cast<int>(blocks), kEachThreads, elements, f, operands);
}

/// f of each element of the operands, the written ones first.
template <typename F, typename T, typename... More>
void each(cudaStream_t stream, std::int64_t elements, const F& f, T* first,
          More*... more) {
    const Operands<T, 1 + sizeof...(More)> operands{{first, const_cast<T*>(more)...}};
    with_width<T>(aligned(first, more...), [&]<int kWidth>(Constant<kWidth>) {
        launch_each<kWidth>(stream, elements, f, operands);
    });
}

/// Does so for numbers of any type, and a function of any.
template <typename F, std::same_as<Numbers>... N>
void each(cudaStream_t stream, std::int64_t elements, const F& f, const Numbers& first,
          const N&... more) {
    with_type(first, [&]<typename T>(T) {
        each(stream, elements, f, first.as<T>(), more.template as<T>()...);
    });
}

}  // namespace lockstep::gpu
