#include "gpu/kernels/each.cuh"
#include "gpu/kernels/optimizer.hpp"

namespace lockstep::gpu {

namespace {

template <typename T>
struct Sgd {
    static constexpr int kWritten = 1;
    static constexpr bool kReadsFirst = true;
    T rate, decay;

    __device__ void operator()(T& parameter, const T& gradient) const {
        parameter = formulas::sgd(parameter, gradient, rate, decay);
    }
};

template <typename T>
struct SgdWithMomentum {
    static constexpr int kWritten = 2;
    static constexpr bool kReadsFirst = true;
    T rate, momentum, decay;

    __device__ void operator()(T& parameter, T& velocity, const T& gradient) const {
        parameter = formulas::sgd_with_momentum(parameter, gradient, velocity, rate,
                                                momentum, decay);
    }
};

template <typename T>
struct AdamW {
    static constexpr int kWritten = 3;
    static constexpr bool kReadsFirst = true;
    formulas::AdamWStep<T> by;

    __device__ void operator()(T& parameter, T& first, T& second,
                               const T& gradient) const {
        parameter = formulas::adamw(parameter, gradient, first, second, by);
    }
};

}  // namespace

template <typename T>
void launch_sgd(cudaStream_t stream, T* parameter, const T* gradient,
                std::int64_t elements, const SgdOptions& options) {
    const Sgd<T> step{static_cast<T>(options.learning_rate),
                      static_cast<T>(options.weight_decay)};
    each(stream, elements, step, parameter, gradient);
}

template <typename T>
void launch_sgd_with_momentum(cudaStream_t stream, T* parameter, T* velocity,
                              const T* gradient, std::int64_t elements,
                              const SgdOptions& options) {
    const SgdWithMomentum<T> step{static_cast<T>(options.learning_rate),
                                  static_cast<T>(options.momentum),
                                  static_cast<T>(options.weight_decay)};
    each(stream, elements, step, parameter, velocity, gradient);
}

template <typename T>
void launch_adamw(cudaStream_t stream, T* parameter, T* first_moment, T* second_moment,
                  const T* gradient, std::int64_t elements,
                  const formulas::AdamWStep<T>& by) {
    each(stream, elements, AdamW<T>{by}, parameter, first_moment, second_moment,
         gradient);
}

template void launch_sgd(cudaStream_t, float*, const float*, std::int64_t,
                         const SgdOptions&);
template void launch_sgd(cudaStream_t, double*, const double*, std::int64_t,
                         const SgdOptions&);
template void launch_sgd_with_momentum(cudaStream_t, float*, float*, const float*,
                                       std::int64_t, const SgdOptions&);
template void launch_sgd_with_momentum(cudaStream_t, double*, double*, const double*,
                                       std::int64_t, const SgdOptions&);
template void launch_adamw(cudaStream_t, float*, float*, float*, const float*,
                           std::int64_t, const formulas::AdamWStep<float>&);
template void launch_adamw(cudaStream_t, double*, double*, double*, const double*,
                           std::int64_t, const formulas::AdamWStep<double>&);

}  // namespace lockstep::gpu
