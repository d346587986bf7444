#include "gpu/kernels/each.cuh"
#include "gpu/kernels/optimizer.hpp"

namespace lockstep::gpu {

namespace {

template <typename T>
struct ClipFactor {
    static constexpr int kWritten = 1;
    static constexpr bool kReadsFirst = false;
    T most;

    __device__ void operator()(T& factor, const T& squares) const {
        factor = formulas::clip_factor(squares, most);
    }
};

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

void launch_clip_factor(cudaStream_t stream, Numbers factor, Numbers squares,
                        double most) {
    with_type(factor, [&]<typename T>(T) {
        each(stream, 1, ClipFactor<T>{static_cast<T>(most)}, factor.as<T>(),
             squares.as<T>());
    });
}

void launch_sgd(cudaStream_t stream, Numbers parameter, Numbers gradient,
                std::int64_t elements, const SgdOptions& options) {
    with_type(parameter, [&]<typename T>(T) {
        const Sgd<T> step{static_cast<T>(options.learning_rate),
                          static_cast<T>(options.weight_decay)};
        each(stream, elements, step, parameter.as<T>(), gradient.as<T>());
    });
}

void launch_sgd_with_momentum(cudaStream_t stream, Numbers parameter, Numbers velocity,
                              Numbers gradient, std::int64_t elements,
                              const SgdOptions& options) {
    with_type(parameter, [&]<typename T>(T) {
        const SgdWithMomentum<T> step{static_cast<T>(options.learning_rate),
                                      static_cast<T>(options.momentum),
                                      static_cast<T>(options.weight_decay)};
        each(stream, elements, step, parameter.as<T>(), velocity.as<T>(),
             gradient.as<T>());
    });
}

void launch_adamw(cudaStream_t stream, Numbers parameter, Numbers first_moment,
                  Numbers second_moment, Numbers gradient, std::int64_t elements,
                  const AdamWOptions& options, std::int64_t step) {
    with_type(parameter, [&]<typename T>(T) {
        each(stream, elements, AdamW<T>{{options, step}}, parameter.as<T>(),
             first_moment.as<T>(), second_moment.as<T>(), gradient.as<T>());
    });
}

}  // namespace lockstep::gpu
