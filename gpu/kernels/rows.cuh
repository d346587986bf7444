#pragma once

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/team.cuh"

namespace lockstep::gpu {

// Kernels that need a row as a whole: its sum, its maximum. A team of threads works on a
// row, a warp where rows are narrow, a block where they are wide. A thread loads packs
// that lie kTeam apart, kHeld of them before it uses the first; a row that one such
// sweep covers is read once and kept in registers (kOnce), others are read twice. All of
// it depends on the row's length alone, and so do the bits of the result.

inline constexpr int kRowThreads = 256;
inline constexpr int kHeld = 8;

/// The row of a thread's team, and the thread's part in it. It computes in T; matrices
/// may be stored in another type.
template <typename T, int kWidth, int kTeam>
class Row {
  public:
    using Values = Pack<T, kWidth>;
    static constexpr std::int64_t kSweep = std::int64_t{kTeam} * kHeld;

    __device__ explicit Row(const MatrixShape& shape)
        : shape_(shape),
          index_(std::int64_t{blockIdx.x} * (kRowThreads / kTeam) + threadIdx.x / kTeam),
          packs_(shape.columns / kWidth) {}

    __device__ std::int64_t index() const { return index_; }
    __device__ bool exists() const { return index_ < shape_.rows; }
    __device__ bool first_thread() const { return threadIdx.x % kTeam == 0; }
    __device__ std::int64_t packs() const { return packs_; }
    __device__ T columns() const { return static_cast<T>(shape_.columns); }

    /// f(k, pack) for the packs of this thread in the sweep that begins at `base`.
    template <typename F>
    __device__ void each(std::int64_t base, const F& f) const {
#pragma unroll
        for (int k = 0; k < kHeld; ++k) {
            const std::int64_t pack = base + k * kTeam + threadIdx.x % kTeam;
            if (pack < packs_) f(k, pack);
        }
    }

    template <typename S>
    __device__ Values read(const S* matrix, std::int64_t pack) const {
        return load<kWidth>(matrix + index_ * shape_.columns + pack * kWidth,
                            shape_.vectors);
    }
    template <typename S>
    __device__ Values read_of_columns(const S* columns, std::int64_t pack) const {
        return load<kWidth>(columns + pack * kWidth, shape_.vectors);
    }
    template <typename S>
    __device__ void write(S* matrix, std::int64_t pack, const Values& values) const {
        store(matrix + index_ * shape_.columns + pack * kWidth, values, shape_.vectors);
    }

    __device__ T sum(T value) const {
        return combined<kTeam>(value, Plus{});
    }
    __device__ T largest(T value) const {
        return combined<kTeam>(value, Larger{});
    }

  private:
    MatrixShape shape_;
    std::int64_t index_;
    std::int64_t packs_;
};

/// A kernel's template arguments, as a value.
template <int kWidthOf, int kTeamOf, bool kOnceOf>
struct RowPlan {
    static constexpr int kWidth = kWidthOf;
    static constexpr int kTeam = kTeamOf;
    static constexpr bool kOnce = kOnceOf;
};

/// launch(plan, blocks) with the plan for rows of this shape.
template <int kWidth, typename Launch>
void with_plan(const MatrixShape& shape, const Launch& launch) {
    constexpr int kBlock = kRowThreads;
    const std::int64_t packs = shape.columns / kWidth;
    const auto rows = static_cast<int>(shape.rows);
    if (packs <= kWarp * kHeld)
        launch(RowPlan<kWidth, kWarp, true>{},
               static_cast<int>(divided_up(shape.rows, kBlock / kWarp)));
    else if (packs <= kBlock * kHeld)
        launch(RowPlan<kWidth, kBlock, true>{}, rows);
    else
        launch(RowPlan<kWidth, kBlock, false>{}, rows);
}

template <typename T, typename Launch>
void with_plan_of(const MatrixShape& shape, const Launch& launch) {
    with_width<T>(shape.columns % kFullWidth<T> == 0, [&]<int kWidth>(Constant<kWidth>) {
        with_plan<kWidth>(shape, launch);
    });
}

}  // namespace lockstep::gpu
