#pragma once

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/team.cuh"

namespace lockstep::gpu {

// Kernels that need a row as a whole: its sum, its maximum. A team of threads works on a
// row, a warp where rows are narrow, a block where they are wide. A thread loads packs
// that lie kTeam apart, kHeld of them before it uses the first. If a kernel needs the row
// again, for what follows from its sum, it keeps what one such sweep covers in registers
// and reads the row once (kOnce); it reads wider rows twice. All of it depends on the
// row's length alone, and so do the bits of the result.

inline constexpr int kRowThreads = 256;
inline constexpr int kHeld = 8;

/// How much a kernel keeps of a row until it has been over all of it. A multiprocessor
/// has 65,536 registers, and a thread holds a sweep of an operand in 32 of them.
enum class Keeps {
    nothing,  ///< it goes over the row once, however wide
    little,   ///< one operand: 64 registers do for 1,024 threads
    much,     ///< two operands, or one and much besides: 128 registers do for 512
};

/// The threads of the largest team that reads its row once: 1,024 hold 32,768 columns of
/// f32 or bf16, and 512 hold 16,384, or half as many of f64. Functions like exp in f64,
/// and packs that are shifted since they do not fill a row, take many registers besides.
template <typename T, bool kWhole>
constexpr int largest_team(Keeps keeps) {
    if (keeps == Keeps::nothing) return kRowThreads;
    return keeps == Keeps::little && sizeof(T) <= 4 && kWhole ? 1024 : 512;
}
/// The threads of a team that reads its row twice. One or two such blocks fit on a
/// multiprocessor, so few rows are under way: what was read may still be in the L2.
inline constexpr int kTeamOfTwice = 512;

/// How a kernel goes over rows of some length: its template argument. A multiprocessor
/// must have room for kBlocks blocks; if that is 0, the compiler weighs them against
/// registers.
template <int kWidthOf, bool kWholeOf, int kTeamOf, bool kOnceOf>
struct RowPlan {
    static constexpr int kWidth = kWidthOf;   ///< elements of a pack
    static constexpr bool kWhole = kWholeOf;  ///< whether packs fill a row
    static constexpr int kTeam = kTeamOf;     ///< threads of a row
    static constexpr bool kOnce = kOnceOf;    ///< whether one sweep covers a row
    static constexpr int kThreads = kTeam > kRowThreads ? kTeam : kRowThreads;
    static constexpr int kRows = kThreads / kTeam;       ///< of a block
    static constexpr int kRoomyBlocks = 512 / kThreads;  ///< of 128 registers a thread
    static constexpr bool kNeedsRoom = kWidth == 2 || !kWhole || !kOnce;
    static constexpr int kBlocks = kNeedsRoom ? kRoomyBlocks : 0;
};

/// The row of a thread's team, and the thread's part in it. It computes in T; matrices
/// may be stored in another type.
template <typename T, typename Plan>
class Row {
  public:
    static constexpr int kWidth = Plan::kWidth;
    static constexpr int kTeam = Plan::kTeam;
    static constexpr std::int64_t kSweep = std::int64_t{kTeam} * kHeld;
    using Values = Pack<T, kWidth>;
    using Held = Values[kHeld];

    __device__ explicit Row(const MatrixShape& shape)
        : shape_(shape),
          index_(std::int64_t{blockIdx.x} * Plan::kRows + threadIdx.x / kTeam),
          packs_(divided_up(shape.columns, kWidth)) {
        if (Plan::kWhole) return;
        const std::int64_t begin = index_ * shape.columns;
        shift_ = static_cast<int>(begin % kWidth);
        const std::int64_t behind = shape.rows * shape.columns / kWidth - begin / kWidth;
        const std::int64_t full = shape.columns / kWidth;
        pairs_ = !shape.vectors ? 0 : full < behind ? full : behind - 1;
    }

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

    /// The elements of the pack that are in the row.
    __device__ int count(std::int64_t pack) const {
        const std::int64_t left = shape_.columns - pack * kWidth;
        return Plan::kWhole || left > kWidth ? kWidth : static_cast<int>(left);
    }

    /// Reads this thread's packs in the sweep that begins at `base`. `nothing` stands for
    /// elements behind the row's last.
    template <typename S>
    __device__ void read(std::int64_t base, Held& held, const S* matrix,
                         T nothing = 0) const {
        each(base, [&](int k, std::int64_t pack) { load_first(held[k], matrix, pack); });
        each(base,
             [&](int k, std::int64_t pack) { complete(held[k], matrix, pack, nothing); });
    }
    /// Does so for two matrices at once.
    template <typename S>
    __device__ void read(std::int64_t base, Held& held, const S* matrix, Held& other_held,
                         const S* other) const {
        each(base, [&](int k, std::int64_t pack) {
            load_first(held[k], matrix, pack);
            load_first(other_held[k], other, pack);
        });
        each(base, [&](int k, std::int64_t pack) {
            complete(held[k], matrix, pack, 0);
            complete(other_held[k], other, pack, 0);
        });
    }
    template <typename S>
    __device__ Values read_of_columns(const S* columns, std::int64_t pack) const {
        if (count(pack) < kWidth)
            return load_rest<kWidth>(columns, pack * kWidth, shape_.columns);
        return load<kWidth>(columns + pack * kWidth, shape_.vectors);
    }
    /// All threads of a warp that have a pack write theirs together.
    template <typename S>
    __device__ void write(S* matrix, std::int64_t pack, const Values& values) const {
        S* to = begin_of(matrix, pack);
        if (Plan::kWhole || !shape_.vectors)
            store_first(to, values, count(pack), Plan::kWhole && shape_.vectors);
        else
            write_shifted(to, pack, values);
    }

    __device__ T sum(T value) const {
        return combined<kTeam>(value, Plus{});
    }
    __device__ T largest(T value) const {
        return combined<kTeam>(value, Larger{});
    }

  private:
    template <typename S>
    __device__ S* begin_of(S* matrix, std::int64_t pack) const {
        return matrix + index_ * shape_.columns + pack * kWidth;
    }
    /// Loads the pack, or the first of the two that it is made of. Loads of all packs are
    /// under way before one is completed, so that a thread waits for memory once: the
    /// second of a pair, the first of the next thread's, is in the L1 by then.
    template <typename S>
    __device__ void load_first(Values& values, const S* matrix, std::int64_t pack) const {
        const S* from = begin_of(matrix, pack);
        if (Plan::kWhole)
            values = load<kWidth>(from, shape_.vectors);
        else if (pack < pairs_)
            values = load<kWidth>(from - shift_, true);
    }
    template <typename S>
    __device__ void complete(Values& values, const S* matrix, std::int64_t pack,
                             T nothing) const {
        if (Plan::kWhole) return;
        const S* from = begin_of(matrix, pack);
        if (pack < pairs_)
            values = shifted(values, load<kWidth>(from - shift_ + kWidth, true), shift_);
        else
            values = load_rest<kWidth>(from, 0, count(pack), nothing);
    }

    /// A place that a pack can be stored to has the end of the pack of the lane before
    /// and the begin of this lane's. The first lane has no such end, and no lane takes
    /// that of the last: they store these elements one by one.
    template <typename S>
    __device__ void write_shifted(S* to, std::int64_t pack, const Values& values) const {
        const int lane = static_cast<int>(threadIdx.x % kWarp);
        const std::int64_t lanes = packs_ - (pack - lane);
        const unsigned mask = lanes < kWarp ? (1U << lanes) - 1 : kAllLanes;
        // The pack before from its second element on, and then this one.
        Values before, own;
#pragma unroll
        for (int i = 1; i < kWidth; ++i) {
            before.value[i - 1] = __shfl_up_sync(mask, values.value[i], 1);
            own.value[i - 1] = values.value[i];
        }
        before.value[kWidth - 1] = values.value[0];
        own.value[kWidth - 1] = 0;
        const Values both = shifted(before, own, kWidth - 1 - shift_);
        const int end = shift_ + count(pack);
        if (lane > 0) store_first(to - shift_, both, end < kWidth ? end : kWidth, true);
        const int from = lane > 0 ? kWidth - shift_ : 0;
        const bool last = lane == kWarp - 1 || pack == packs_ - 1;
        const int until = last ? count(pack) : kWidth - shift_;
#pragma unroll
        for (int i = 0; i < kWidth; ++i)
            if (from <= i && i < until) to[i] = static_cast<S>(values.value[i]);
    }

    MatrixShape shape_;
    std::int64_t index_;
    std::int64_t packs_;
    // If packs do not fill a row, each of its packs begins shift_ elements behind an
    // address at which a pack can be loaded, and the first pairs_ packs are shifted out
    // of two that are loaded there: both lie in the matrix, and the pack in the row. The
    // elements of the rest, and of a matrix that begins elsewhere, are loaded one by one.
    int shift_ = 0;
    std::int64_t pairs_ = 0;
};

/// with(plan), given the packs of a row.
template <typename S, Keeps kKeeps, bool kWhole, typename With>
void with_team(std::int64_t packs, const With& with) {
    constexpr int kWidth = kFullWidth<S>;
    constexpr int kLargest = largest_team<Computed<S>, kWhole>(kKeeps);
    if (packs <= kWarp * kHeld) {
        with(RowPlan<kWidth, kWhole, kWarp, true>{});
    } else if (kKeeps == Keeps::nothing || packs <= kRowThreads * kHeld) {
        with(RowPlan<kWidth, kWhole, kRowThreads, true>{});
    } else if constexpr (kKeeps != Keeps::nothing) {
        if (packs <= kLargest * kHeld)
            with(RowPlan<kWidth, kWhole, kLargest, true>{});
        else
            with(RowPlan<kWidth, kWhole, kTeamOfTwice, false>{});
    }
}

/// launch(plan, blocks) with the plan for rows of this shape.
template <typename S, Keeps kKeeps, typename Launch>
void with_plan(const MatrixShape& shape, const Launch& launch) {
    const std::int64_t packs = divided_up(shape.columns, kFullWidth<S>);
    const auto with = [&]<typename Plan>(Plan plan) {
        launch(plan, static_cast<int>(divided_up(shape.rows, Plan::kRows)));
    };
    if (shape.columns % kFullWidth<S> == 0)
        with_team<S, kKeeps, true>(packs, with);
    else
        with_team<S, kKeeps, false>(packs, with);
}

}  // namespace lockstep::gpu
