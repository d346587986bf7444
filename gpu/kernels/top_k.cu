#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/team.cuh"
#include "gpu/kernels/top_k.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

constexpr int kTopThreads = 256;

/// A value and its column; column -1 if there is none.
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

/// A team of threads finds a row's largest values one after another. Each is the largest
/// of the values that rank after the previous one.
template <typename S, int kTeam>
struct RowOfTeam {
    using T = Computed<S>;
    using One = Ranked<T>;
    const S* x;
    int thread = static_cast<int>(threadIdx.x % kTeam);

    __device__ static One none() { return {T{0}, -1}; }
    __device__ static One first_behind(const One& last, const One& first,
                                       const One& other) {
        return last.column < 0 || last.comes_before(other) ? First{}(first, other)
                                                           : first;
    }

    /// Returns the next value among the columns of [begin, end) for which `looks_at` is
    /// true.
    template <typename LooksAt>
    __device__ One next(const One& last, std::int64_t begin, std::int64_t end,
                        const LooksAt& looks_at) const {
        One first = none();
        for (std::int64_t column = begin + thread; column < end; column += kTeam)
            if (looks_at(column)) first = first_behind(last, first, {x[column], column});
        return combined<kTeam>(first, First{});
    }

    /// Returns a bit for each group that the row chooses. Thread i has the sum of group
    /// i.
    __device__ unsigned chosen(const ColumnGroups& groups, std::int64_t width) const {
        T own = 0;
        for (std::int64_t group = 0; group < groups.count; ++group) {
            T sum = 0;
            One last = none();
            for (std::int64_t i = 0; i < groups.best; ++i) {
                last = next(last, group * width, (group + 1) * width,
                            [](std::int64_t) { return true; });
                sum += last.value;
            }
            if (thread == group) own = sum;
        }
        unsigned bits = 0;
        One last = none();
        for (std::int64_t i = 0; i < groups.chosen; ++i) {
            One first = none();
            if (thread < groups.count) first = first_behind(last, first, {own, thread});
            last = combined<kTeam>(first, First{});
            bits |= 1U << last.column;
        }
        return bits;
    }
};

template <typename S, int kTeam>
__global__ void __launch_bounds__(kTopThreads)
    top_of_rows(S* values, std::int32_t* indices, const S* x, MatrixShape shape,
                std::int64_t k, ColumnGroups groups) {
    static_assert(ColumnGroups::kMost <= kTeam);
    const std::int64_t row =
        std::int64_t{blockIdx.x} * (kTopThreads / kTeam) + threadIdx.x / kTeam;
    if (row >= shape.rows) return;
    const RowOfTeam<S, kTeam> team{x + row * shape.columns};
    const std::int64_t width = shape.columns / groups.count;
    const unsigned bits = groups.count == 1 ? 1U : team.chosen(groups, width);
    auto last = team.none();
    for (std::int64_t place = row * k; place < (row + 1) * k; ++place) {
        last = team.next(last, 0, shape.columns, [&](std::int64_t column) {
            return groups.count == 1 || (bits >> column / width & 1U) != 0;
        });
        if (team.thread != 0) continue;
        values[place] = static_cast<S>(last.value);
        indices[place] = static_cast<std::int32_t>(last.column);
    }
}

}  // namespace

void launch_top_k(cudaStream_t stream, Numbers values, std::int32_t* indices, Numbers x,
                  std::int64_t rows, std::int64_t columns, std::int64_t k,
                  const ColumnGroups& groups) {
    constexpr std::int64_t kNarrow = 1024;
    with_type(x, [&]<typename S>(S) {
        const auto start = [&]<int kTeam>(Constant<kTeam>) {
            launch(stream, top_of_rows<S, kTeam>,
                   static_cast<int>(divided_up(rows, kTopThreads / kTeam)), kTopThreads,
                   values.as<S>(), indices, x.as<S>(), MatrixShape{rows, columns, false},
                   k, groups);
        };
        if (columns <= kNarrow)
            start(Constant<kWarp>());
        else
            start(Constant<kTopThreads>());
    });
}

}  // namespace lockstep::gpu
