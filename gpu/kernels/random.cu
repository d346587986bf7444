#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/random.hpp"

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

template <typename S, typename Draw>
__global__ void __launch_bounds__(kRandomThreads)
    random_kernel(S* destination, std::int64_t elements, Draw draw, std::int64_t offset) {
    const std::int64_t i = std::int64_t{blockIdx.x} * kRandomThreads + threadIdx.x;
    if (i >= elements) return;
    const double drawn = draw(static_cast<std::uint64_t>(offset + i));
    destination[i] = static_cast<S>(static_cast<Computed<S>>(drawn));
}

template <typename Draw>
void fill_with(cudaStream_t stream, Numbers destination, std::int64_t elements,
               const Draw& draw, std::int64_t offset) {
    const auto blocks = static_cast<int>(divided_up(elements, kRandomThreads));
    with_type(destination, [&]<typename S>(S) {
        launch(stream, random_kernel<S, Draw>, blocks, kRandomThreads,
               destination.as<S>(), elements, draw, offset);
    });
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

}  // namespace lockstep::gpu
