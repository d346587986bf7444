#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/team.cuh"
#include "gpu/kernels/top_k.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

constexpr int kTopThreads = 256;

/// A value and its column; -1 if there is none.
template <typename T>
struct Ranked {
    T value;
    std::int64_t column;

    __device__ bool comes_before(const Ranked& other) const {
        return formulas::comes_first(value, column, other.value, other.column);
    }
};

template <typename T>
__device__ Ranked<T> of_other_lane(const Ranked<T>& ranked, int step) {
    return {__shfl_xor_sync(kAllLanes, ranked.value, step),
            __shfl_xor_sync(kAllLanes, ranked.column, step)};
}

struct First {
    template <typename T>
    __device__ Ranked<T> operator()(const Ranked<T>& a, const Ranked<T>& b) const {
        if (a.column < 0) return b;
        return b.column < 0 || a.comes_before(b) ? a : b;
    }
};

/// A team of threads finds one of a row's k after the other: the first of all that come
/// behind the last that was found.
template <typename S, int kTeam>
__global__ void __launch_bounds__(kTopThreads)
    top_of_rows(S* values, std::int32_t* indices, const S* x, MatrixShape shape,
                std::int64_t k) {
    using T = Computed<S>;
    const std::int64_t row =
        std::int64_t{blockIdx.x} * (kTopThreads / kTeam) + threadIdx.x / kTeam;
    if (row >= shape.rows) return;
    Ranked<T> last{T{0}, -1};
    for (std::int64_t place = row * k; place < (row + 1) * k; ++place) {
        Ranked<T> first{T{0}, -1};
        for (std::int64_t column = threadIdx.x % kTeam; column < shape.columns;
             column += kTeam) {
            const Ranked<T> other{x[row * shape.columns + column], column};
            if (last.column < 0 || last.comes_before(other))
                first = First{}(first, other);
        }
        last = combined<kTeam>(first, First{});
        if (threadIdx.x % kTeam != 0) continue;
        values[place] = static_cast<S>(last.value);
        indices[place] = static_cast<std::int32_t>(last.column);
    }
}

}  // namespace

void launch_top_k(cudaStream_t stream, Numbers values, std::int32_t* indices, Numbers x,
                  std::int64_t rows, std::int64_t columns, std::int64_t k) {
    constexpr std::int64_t kNarrow = 1024;
    with_type(x, [&]<typename S>(S) {
        const auto start = [&]<int kTeam>(Constant<kTeam>) {
            launch(stream, top_of_rows<S, kTeam>,
                   static_cast<int>(divided_up(rows, kTopThreads / kTeam)), kTopThreads,
                   values.as<S>(), indices, x.as<S>(), MatrixShape{rows, columns, false},
                   k);
        };
        if (columns <= kNarrow)
            start(Constant<kWarp>());
        else
            start(Constant<kTopThreads>());
    });
}

}  // namespace lockstep::gpu
