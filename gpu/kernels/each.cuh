#pragma once

#include <cstddef>
#include <tuple>
#include <type_traits>
#include <utility>

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"

namespace lockstep::gpu {

// Operations that are computed element by element. A function object computes one
// element: f(a[i], b[i], …) gets one element of each operand, by reference. It has two
// static constants: int kWritten says how many operands are written (the first ones), and
// bool kReadsFirst says whether the first operand is also read.
//
// Operands may be the same memory, because a thread reads its elements of all operands
// before it writes any.

inline constexpr int kEachThreads = 256;

/// The last operand is stored as `Last`, the others as S. If `Last` is not S, the last
/// operand must not be written. So f32 parameters may have bf16 gradients.
template <typename S, typename Last, int kOperands>
struct Operands {
    void* data[kOperands];

    template <int kWidth>
    __device__ Pack<Computed<S>, kWidth> read(int k, std::int64_t at) const {
        if (!std::is_same_v<S, Last> && k == kOperands - 1)
            return load<kWidth>(static_cast<const Last*>(data[k]) + at, true);
        return load<kWidth>(static_cast<const S*>(data[k]) + at, true);
    }
    template <int kWidth>
    __device__ void write(int k, std::int64_t at,
                          const Pack<Computed<S>, kWidth>& values) const {
        store(static_cast<S*>(data[k]) + at, values, true);
    }
};

template <typename F, typename T, int kWidth, std::size_t... k>
__device__ void apply(const F& f, Pack<T, kWidth>* operands, int lane,
                      std::index_sequence<k...>) {
    f(operands[k].value[lane]...);
}

template <int kWidth, int kUnroll, typename F, typename S, typename Last, int kOperands>
__global__ void __launch_bounds__(kEachThreads)
    each_kernel(std::int64_t elements, F f, Operands<S, Last, kOperands> operands) {
    using T = Computed<S>;
    constexpr auto kAll = std::make_index_sequence<kOperands>();
    const std::int64_t packs = elements / kWidth;
    const std::int64_t first =
        std::int64_t{blockIdx.x} * (kEachThreads * kUnroll) + threadIdx.x;
    Pack<T, kWidth> values[kUnroll][kOperands];

    // Start all loads before the first value is needed.
#pragma unroll
    for (int u = 0; u < kUnroll; ++u) {
        const std::int64_t pack = first + u * kEachThreads;
#pragma unroll
        for (int k = F::kReadsFirst ? 0 : 1; k < kOperands; ++k)
            if (pack < packs)
                values[u][k] = operands.template read<kWidth>(k, pack * kWidth);
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
            operands.write(k, pack * kWidth, values[u][k]);
    }

    // The remaining elements do not fill a pack: one element per thread.
    if constexpr (kWidth > 1) {
        const std::int64_t at = packs * kWidth + threadIdx.x;
        if (blockIdx.x != 0 || at >= elements) return;
        Pack<T, 1> last[kOperands];
        for (int k = F::kReadsFirst ? 0 : 1; k < kOperands; ++k)
            last[k] = operands.template read<1>(k, at);
        apply(f, last, 0, kAll);
        for (int k = 0; k < F::kWritten; ++k)
            operands.write(k, at, last[k]);
    }
}

template <int kWidth, typename F, typename S, typename Last, int kOperands>
void launch_each(cudaStream_t stream, std::int64_t elements, const F& f,
                 const Operands<S, Last, kOperands>& operands) {
    // Each thread loads enough bytes at once to hide the latency of memory.
    constexpr int kPacks = kOperands >= 4 ? 1 : 4 / kOperands;
    constexpr int kUnroll = kPacks * kFullWidth<S> / kWidth;
    const std::int64_t blocks =
        divided_up(divided_up(elements, kWidth), kEachThreads * kUnroll);
    launch(stream, each_kernel<kWidth, kUnroll, F, S, Last, kOperands>,
           static_cast<int>(blocks), kEachThreads, elements, f, operands);
}

/// Calls f for each element of the operands. Operands that f writes come first.
template <typename F, typename S, typename... More>
void each(cudaStream_t stream, std::int64_t elements, const F& f, S* first,
          More*... more) {
    using Last = std::remove_const_t<
        std::tuple_element_t<sizeof...(More), std::tuple<S, More...>>>;
    const Operands<S, Last, 1 + sizeof...(More)> operands{
        {first, const_cast<std::remove_const_t<More>*>(more)...}};
    with_width<S>(aligned(first, more...), [&]<int kWidth>(Constant<kWidth>) {
        launch_each<kWidth>(stream, elements, f, operands);
    });
}

/// Calls f for each element of operands of any type; f must be generic.
template <typename F, std::same_as<Numbers>... N>
void each(cudaStream_t stream, std::int64_t elements, const F& f, const Numbers& first,
          const N&... more) {
    with_type(first, [&]<typename S>(S) {
        each(stream, elements, f, first.as<S>(), more.template as<S>()...);
    });
}

}  // namespace lockstep::gpu
