#include <type_traits>

#include "gpu/kernels/each.cuh"
#include "gpu/kernels/reduce.cuh"
#include "gpu/kernels/reduce.hpp"

namespace lockstep::gpu {

namespace {

/// The type for sums of numbers that are stored as S.
template <typename S>
using SumOf = std::conditional_t<std::is_integral_v<S>, S, double>;

/// The packs of one tensor; zeros after its last element.
template <typename S>
struct Packs {
    static constexpr int kWidth = kFullWidth<S>;
    using Loaded = Pack<Computed<S>, kWidth>;
    const S* values;
    std::int64_t elements;
    bool vectors;

    Packs(const S* first, std::int64_t count)
        : values(first), elements(count), vectors(aligned(first)) {}
    __device__ Loaded load(std::int64_t pack) const {
        return gpu::load<kWidth>(values + pack * kWidth, vectors);
    }
    __device__ Loaded load_rest(std::int64_t pack) const {
        return gpu::load_rest<kWidth>(values, pack * kWidth, elements);
    }
};

template <typename S>
struct Values : Packs<S> {
    using Result = SumOf<S>;
    using typename Packs<S>::Loaded;

    __device__ Result result_of(const Loaded& loaded, std::int64_t) const {
        Result sum = loaded.value[0];
#pragma unroll
        for (int lane = 1; lane < Packs<S>::kWidth; ++lane)
            sum += loaded.value[lane];
        return sum;
    }
};

template <typename S>
struct Squares : Packs<S> {
    using Result = double;
    using typename Packs<S>::Loaded;

    __device__ Result result_of(const Loaded& loaded, std::int64_t) const {
        Result sum = 0;
#pragma unroll
        for (int lane = 0; lane < Packs<S>::kWidth; ++lane) {
            const double value = loaded.value[lane];
            sum += value * value;
        }
        return sum;
    }
};

template <typename S>
struct SquaredDifferences {
    static constexpr int kWidth = kFullWidth<S>;
    using Result = double;
    struct Loaded {
        Pack<Computed<S>, kWidth> a, b;
    };
    Packs<S> a, b;
    std::int64_t elements;

    __device__ Loaded load(std::int64_t pack) const {
        return {a.load(pack), b.load(pack)};
    }
    __device__ Loaded load_rest(std::int64_t pack) const {
        return {a.load_rest(pack), b.load_rest(pack)};
    }
    __device__ Result result_of(const Loaded& loaded, std::int64_t) const {
        Result sum = 0;
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
            const double difference = loaded.a.value[lane] - loaded.b.value[lane];
            sum += difference * difference;
        }
        return sum;
    }
};

/// The zeros after the last index are inside the bounds.
struct PositionsOutside : Packs<std::int32_t> {
    using Result = std::int64_t;
    std::int64_t bound;

    __device__ Result result_of(const Loaded& loaded, std::int64_t pack) const {
        Result first = Smaller::identity<Result>();
#pragma unroll
        for (int lane = kWidth - 1; lane >= 0; --lane)
            if (loaded.value[lane] < 0 || loaded.value[lane] >= bound)
                first = pack * kWidth + lane;
        return first;
    }
};

template <typename T>
struct Keep {
    T* result;
    bool accumulate;

    __device__ void operator()(SumOf<T> sum) const {
        *result = static_cast<T>(accumulate ? *result + sum : sum);
    }
};

struct KeepFirst {
    FirstOutside* first;
    const std::int32_t* indices;

    __device__ void operator()(std::int64_t position) const {
        const bool found = position != Smaller::identity<std::int64_t>();
        *first = {found ? position : -1, found ? indices[position] : 0};
    }
};

template <typename T>
struct ErrorGradient {
    static constexpr int kWritten = 1;
    static constexpr bool kReadsFirst = false;
    T factor;
    __device__ void operator()(T& gradient, const T& prediction, const T& target) const {
        gradient = factor * (prediction - target);
    }
};

}  // namespace

template <typename S>
void launch_sum(cudaStream_t stream, void* workspace, Computed<S>* result,
                const S* values, std::int64_t elements, bool accumulate) {
    reduce(stream, workspace, Values<S>{{values, elements}}, Plus{},
           Keep<Computed<S>>{result, accumulate});
}

void launch_sum_of_squares(cudaStream_t stream, void* workspace, Numbers result,
                           Numbers values, std::int64_t elements) {
    with_type(values, [&]<typename S>(S) {
        using T = Computed<S>;
        reduce(stream, workspace, Squares<S>{{values.as<S>(), elements}}, Plus{},
               Keep<T>{result.as<T>(), true});
    });
}

void launch_squared_error(cudaStream_t stream, void* workspace, Numbers result,
                          Numbers prediction, Numbers target, std::int64_t elements) {
    with_type(prediction, [&]<typename S>(S) {
        using T = Computed<S>;
        const SquaredDifferences<S> terms{
            {prediction.as<S>(), elements}, {target.as<S>(), elements}, elements};
        reduce(stream, workspace, terms, Plus{}, Keep<T>{result.as<T>(), false});
    });
}

void launch_squared_error_backward(cudaStream_t stream, Numbers d_prediction,
                                   Numbers prediction, Numbers target,
                                   std::int64_t elements, double factor) {
    with_type(d_prediction, [&]<typename S>(S) {
        using T = Computed<S>;
        each(stream, elements, ErrorGradient<T>{static_cast<T>(factor)},
             d_prediction.as<S>(), prediction.as<S>(), target.as<S>());
    });
}

void launch_first_outside(cudaStream_t stream, void* workspace, FirstOutside* first,
                          const std::int32_t* indices, std::int64_t elements,
                          std::int64_t bound) {
    reduce(stream, workspace, PositionsOutside{{indices, elements}, bound}, Smaller{},
           KeepFirst{first, indices});
}

template void launch_sum(cudaStream_t, void*, float*, const float*, std::int64_t, bool);
template void launch_sum(cudaStream_t, void*, double*, const double*, std::int64_t, bool);
template void launch_sum(cudaStream_t, void*, float*, const Bf16*, std::int64_t, bool);
template void launch_sum(cudaStream_t, void*, std::uint32_t*, const std::uint32_t*,
                         std::int64_t, bool);

}  // namespace lockstep::gpu
