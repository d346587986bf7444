#include <type_traits>

#include "gpu/kernels/each.cuh"
#include "gpu/kernels/reduce.cuh"
#include "gpu/kernels/reduce.hpp"

namespace lockstep::gpu {

namespace {

/// What T is summed in.
template <typename T>
using SumOf = std::conditional_t<std::is_integral_v<T>, T, double>;

template <typename T>
struct Values {
    static constexpr int kWidth = kFullWidth<T>;
    using Result = SumOf<T>;
    using Loaded = Pack<T, kWidth>;
    const T* values;
    std::int64_t elements;
    bool vectors;

    __device__ Loaded load(std::int64_t pack) const {
        return gpu::load<kWidth>(values + pack * kWidth, vectors);
    }
    __device__ Loaded load_rest(std::int64_t pack) const {
        return gpu::load_rest<kWidth>(values, pack * kWidth, elements);
    }
    __device__ Result of(const Loaded& loaded, std::int64_t) const {
        Result sum = loaded.value[0];
#pragma unroll
        for (int lane = 1; lane < kWidth; ++lane)
            sum += loaded.value[lane];
        return sum;
    }
};

template <typename T>
struct Squares : Values<T> {
    __device__ double of(const typename Values<T>::Loaded& loaded, std::int64_t) const {
        double sum = 0;
#pragma unroll
        for (int lane = 0; lane < Values<T>::kWidth; ++lane) {
            const double value = loaded.value[lane];
            sum += value * value;
        }
        return sum;
    }
};

template <typename T>
struct SquaredDifferences {
    static constexpr int kWidth = kFullWidth<T>;
    using Result = double;
    struct Loaded {
        Pack<T, kWidth> a, b;
    };
    const T* a;
    const T* b;
    std::int64_t elements;
    bool vectors;

    __device__ Loaded load(std::int64_t pack) const {
        return {gpu::load<kWidth>(a + pack * kWidth, vectors),
                gpu::load<kWidth>(b + pack * kWidth, vectors)};
    }
    __device__ Loaded load_rest(std::int64_t pack) const {
        return {gpu::load_rest<kWidth>(a, pack * kWidth, elements),
                gpu::load_rest<kWidth>(b, pack * kWidth, elements)};
    }
    __device__ Result of(const Loaded& loaded, std::int64_t) const {
        Result sum = 0;
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
            const double difference = loaded.a.value[lane] - loaded.b.value[lane];
            sum += difference * difference;
        }
        return sum;
    }
};

struct PositionsOutside {
    static constexpr int kWidth = kFullWidth<std::int32_t>;
    using Result = std::int64_t;
    using Loaded = Pack<std::int32_t, kWidth>;
    const std::int32_t* indices;
    std::int64_t elements;
    std::int64_t bound;
    bool vectors;

    __device__ Loaded load(std::int64_t pack) const {
        return gpu::load<kWidth>(indices + pack * kWidth, vectors);
    }
    /// Zeros behind the last index lie inside.
    __device__ Loaded load_rest(std::int64_t pack) const {
        return gpu::load_rest<kWidth>(indices, pack * kWidth, elements);
    }
    __device__ Result of(const Loaded& loaded, std::int64_t pack) const {
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
    T by;
    __device__ void operator()(T& gradient, const T& prediction, const T& target) const {
        gradient = by * (prediction - target);
    }
};

}  // namespace

template <typename T>
void launch_sum(cudaStream_t stream, void* workspace, T* result, const T* values,
                std::int64_t elements, bool accumulate) {
    reduce(stream, workspace, Values<T>{values, elements, aligned(values)}, Plus{},
           Keep<T>{result, accumulate});
}

template <typename T>
void launch_sum_of_squares(cudaStream_t stream, void* workspace, T* result,
                           const T* values, std::int64_t elements) {
    reduce(stream, workspace, Squares<T>{{values, elements, aligned(values)}}, Plus{},
           Keep<T>{result, true});
}

template <typename T>
void launch_squared_error(cudaStream_t stream, void* workspace, T* result,
                          const T* prediction, const T* target, std::int64_t elements) {
    const SquaredDifferences<T> terms{prediction, target, elements,
                                      aligned(prediction, target)};
    reduce(stream, workspace, terms, Plus{}, Keep<T>{result, false});
}

template <typename T>
void launch_squared_error_backward(cudaStream_t stream, T* d_prediction,
                                   const T* prediction, const T* target,
                                   std::int64_t elements, T by) {
    each(stream, elements, ErrorGradient<T>{by}, d_prediction, prediction, target);
}

void launch_first_outside(cudaStream_t stream, void* workspace, FirstOutside* first,
                          const std::int32_t* indices, std::int64_t elements,
                          std::int64_t bound) {
    reduce(stream, workspace,
           PositionsOutside{indices, elements, bound, aligned(indices)}, Smaller{},
           KeepFirst{first, indices});
}

template void launch_sum(cudaStream_t, void*, float*, const float*, std::int64_t, bool);
template void launch_sum(cudaStream_t, void*, double*, const double*, std::int64_t, bool);
template void launch_sum(cudaStream_t, void*, std::uint32_t*, const std::uint32_t*,
                         std::int64_t, bool);
template void launch_sum_of_squares(cudaStream_t, void*, float*, const float*,
                                    std::int64_t);
template void launch_sum_of_squares(cudaStream_t, void*, double*, const double*,
                                    std::int64_t);
template void launch_squared_error(cudaStream_t, void*, float*, const float*,
                                   const float*, std::int64_t);
template void launch_squared_error(cudaStream_t, void*, double*, const double*,
                                   const double*, std::int64_t);
template void launch_squared_error_backward(cudaStream_t, float*, const float*,
                                            const float*, std::int64_t, float);
template void launch_squared_error_backward(cudaStream_t, double*, const double*,
                                            const double*, std::int64_t, double);

}  // namespace lockstep::gpu
