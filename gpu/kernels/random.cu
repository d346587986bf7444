#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/random.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

constexpr int kRandomThreads = 256;

struct Uniform {
    RandomStream numbers;
    double low, span;
    __device__ double operator()(std::uint64_t i) const {
        return low + span * numbers.uniform(i);
    }
};

struct Normal {
    RandomStream numbers;
    double mean, deviation;
    __device__ double operator()(std::uint64_t i) const {
        return mean + deviation * numbers.normal(i);
    }
};

/// Each thread computes a pack of up to four independent numbers at once, then stores it.
template <int kWidth, typename S, typename Draw>
__global__ void __launch_bounds__(kRandomThreads)
    random_kernel(S* destination, std::int64_t elements, Draw draw, std::int64_t offset) {
    const std::int64_t thread = std::int64_t{blockIdx.x} * kRandomThreads + threadIdx.x;
    const std::int64_t begin = thread * kWidth;
    if (begin >= elements) return;
    Pack<Computed<S>, kWidth> drawn;
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane)
        drawn.value[lane] = static_cast<Computed<S>>(
            draw(static_cast<std::uint64_t>(offset + begin + lane)));
    const std::int64_t left = elements - begin;
    store_first(destination + begin, drawn,
                left < kWidth ? static_cast<int>(left) : kWidth, true);
}

template <typename Draw>
void fill_with(cudaStream_t stream, Numbers destination, std::int64_t elements,
               const Draw& draw, std::int64_t offset) {
    with_type(destination, [&]<typename S>(S) {
        with_width<S>(aligned(destination), [&]<int kWidth>(Constant<kWidth>) {
            const std::int64_t threads = divided_up(elements, kWidth);
            launch(stream, random_kernel<kWidth, S, Draw>,
                   static_cast<int>(divided_up(threads, kRandomThreads)), kRandomThreads,
                   destination.as<S>(), elements, draw, offset);
        });
    });
}

template <int kWidth, typename S>
__global__ void __launch_bounds__(kRandomThreads)
    dropout_kernel(S* y, const S* x, std::int64_t elements, RandomStream numbers,
                   double probability, std::int64_t offset) {
    const std::int64_t thread = std::int64_t{blockIdx.x} * kRandomThreads + threadIdx.x;
    const std::int64_t begin = thread * kWidth;
    if (begin >= elements) return;
    const std::int64_t left = elements - begin;
    const bool full = left >= kWidth;
    auto values =
        full ? load<kWidth>(x + begin, true) : load_rest<kWidth>(x, begin, elements);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane)
        values.value[lane] = formulas::dropout(
            values.value[lane],
            numbers.uniform(static_cast<std::uint64_t>(offset + begin + lane)),
            probability);
    store_first(y + begin, values, full ? kWidth : static_cast<int>(left), true);
}

}  // namespace

void launch_random_uniform(cudaStream_t stream, Numbers destination,
                           std::int64_t elements, const RandomStream& numbers, double low,
                           double span, std::int64_t offset) {
    fill_with(stream, destination, elements, Uniform{numbers, low, span}, offset);
}

void launch_random_normal(cudaStream_t stream, Numbers destination, std::int64_t elements,
                          const RandomStream& numbers, double mean, double deviation,
                          std::int64_t offset) {
    fill_with(stream, destination, elements, Normal{numbers, mean, deviation}, offset);
}

void launch_dropout(cudaStream_t stream, Numbers y, Numbers x, std::int64_t elements,
                    const RandomStream& numbers, double probability,
                    std::int64_t offset) {
    with_type(y, [&]<typename S>(S) {
        with_width<S>(aligned(y, x), [&]<int kWidth>(Constant<kWidth>) {
            const std::int64_t threads = divided_up(elements, kWidth);
            launch(stream, dropout_kernel<kWidth, S>,
                   static_cast<int>(divided_up(threads, kRandomThreads)), kRandomThreads,
                   y.as<S>(), x.as<S>(), elements, numbers, probability, offset);
        });
    });
}

}  // namespace lockstep::gpu
