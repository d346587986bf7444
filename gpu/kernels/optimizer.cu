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
    formulas::AdamWStep<T> step;

    __device__ void operator()(T& parameter, T& first, T& second,
                               const T& gradient) const {
        parameter = formulas::adamw(parameter, gradient, first, second, step);
    }
};

/// Calls f(a value of the parameter's type, a value of the gradient's type).
template <typename F>
void with_types(const Numbers& parameter, const Numbers& gradient, const F& f) {
    with_type(parameter, [&]<typename S>(S of_parameter) {
        if constexpr (std::is_same_v<S, float>)
            if (gradient.bytes == sizeof(Bf16)) return f(of_parameter, Bf16{});
        f(of_parameter, of_parameter);
    });
}

}  // namespace

void launch_clip_factor(cudaStream_t stream, Numbers factor, Numbers squares,
                        double most) {
    with_type(factor, [&]<typename S>(S) {
        using T = Computed<S>;
        each(stream, 1, ClipFactor<T>{static_cast<T>(most)}, factor.as<S>(),
             squares.as<S>());
    });
}

void launch_sgd(cudaStream_t stream, Numbers parameter, Numbers gradient,
                std::int64_t elements, const SgdOptions& options) {
    with_types(parameter, gradient, [&]<typename S, typename G>(S, G) {
        using T = Computed<S>;
        const Sgd<T> step{static_cast<T>(options.learning_rate),
                          static_cast<T>(options.weight_decay)};
        each(stream, elements, step, parameter.as<S>(), gradient.as<G>());
    });
}

void launch_sgd_with_momentum(cudaStream_t stream, Numbers parameter, Numbers velocity,
                              Numbers gradient, std::int64_t elements,
                              const SgdOptions& options) {
    with_types(parameter, gradient, [&]<typename S, typename G>(S, G) {
        using T = Computed<S>;
        const SgdWithMomentum<T> step{static_cast<T>(options.learning_rate),
                                      static_cast<T>(options.momentum),
                                      static_cast<T>(options.weight_decay)};
        each(stream, elements, step, parameter.as<S>(), velocity.as<S>(),
             gradient.as<G>());
    });
}

void launch_adamw(cudaStream_t stream, Numbers parameter, Numbers first_moment,
                  Numbers second_moment, Numbers gradient, std::int64_t elements,
                  const AdamWOptions& options, std::int64_t step) {
    with_types(parameter, gradient, [&]<typename S, typename G>(S, G) {
        using T = Computed<S>;
        each(stream, elements, AdamW<T>{{options, step}}, parameter.as<S>(),
             first_moment.as<S>(), second_moment.as<S>(), gradient.as<G>());
    });
}

}  // namespace lockstep::gpu
