#include <cmath>

#include "gpu/kernels/activation.hpp"
#include "gpu/kernels/each.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

struct Function {
    static constexpr int kWritten = 1;
    static constexpr bool kReadsFirst = false;
};

struct Tanh : Function {
    template <typename T>
    __device__ void operator()(T& y, const T& x) const {
        y = std::tanh(x);
    }
};

struct TanhBackward : Function {
    template <typename T>
    __device__ void operator()(T& dx, const T& y, const T& dy) const {
        dx = formulas::tanh_backward(y, dy);
    }
};

struct Gelu : Function {
    template <typename T>
    __device__ void operator()(T& y, const T& x) const {
        y = formulas::gelu(x);
    }
};

struct GeluBackward : Function {
    template <typename T>
    __device__ void operator()(T& dx, const T& x, const T& dy) const {
        dx = formulas::gelu_backward(x, dy);
    }
};

}  // namespace

template <typename T>
void launch_tanh(cudaStream_t stream, T* y, const T* x, std::int64_t elements) {
    each(stream, elements, Tanh{}, y, x);
}

template <typename T>
void launch_tanh_backward(cudaStream_t stream, T* dx, const T* y, const T* dy,
                          std::int64_t elements) {
    each(stream, elements, TanhBackward{}, dx, y, dy);
}

template <typename T>
void launch_gelu(cudaStream_t stream, T* y, const T* x, std::int64_t elements) {
    each(stream, elements, Gelu{}, y, x);
}

template <typename T>
void launch_gelu_backward(cudaStream_t stream, T* dx, const T* x, const T* dy,
                          std::int64_t elements) {
    each(stream, elements, GeluBackward{}, dx, x, dy);
}

template void launch_tanh(cudaStream_t, float*, const float*, std::int64_t);
template void launch_tanh(cudaStream_t, double*, const double*, std::int64_t);
template void launch_tanh_backward(cudaStream_t, float*, const float*, const float*,
                                   std::int64_t);
template void launch_tanh_backward(cudaStream_t, double*, const double*, const double*,
                                   std::int64_t);
template void launch_gelu(cudaStream_t, float*, const float*, std::int64_t);
template void launch_gelu(cudaStream_t, double*, const double*, std::int64_t);
template void launch_gelu_backward(cudaStream_t, float*, const float*, const float*,
                                   std::int64_t);
template void launch_gelu_backward(cudaStream_t, double*, const double*, const double*,
                                   std::int64_t);

}  // namespace lockstep::gpu
