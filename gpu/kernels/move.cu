#include "gpu/kernels/move.hpp"

#include "gpu/kernels/launch.cuh"

namespace lockstep::gpu {

namespace {

template <typename T>
__global__ void fill(T* destination, std::int64_t elements, T value) {
    const std::int64_t stride = std::int64_t{gridDim.x} * blockDim.x;
    for (std::int64_t i = std::int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < elements;
         i += stride)
        destination[i] = value;
}

}  // namespace

template <typename T>
void launch_fill(cudaStream_t stream, T* destination, std::int64_t elements, T value) {
    launch(stream, fill<T>, 64, 256, destination, elements, value);
}

template void launch_fill(cudaStream_t, float*, std::int64_t, float);
template void launch_fill(cudaStream_t, double*, std::int64_t, double);
template void launch_fill(cudaStream_t, std::int32_t*, std::int64_t, std::int32_t);

}  // namespace lockstep::gpu
