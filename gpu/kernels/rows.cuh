#pragma once

#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/pack.cuh"
#include "gpu/kernels/team.cuh"

namespace lockstep::gpu {

// For kernels that need a whole row at once, such as for its sum or maximum. A team of
// threads works on a row: a warp if rows are narrow, a block if they are wide. A thread's
// packs are kTeam apart; the thread loads kHeld packs before it uses the first. Some
// kernels need the row again, after its sum is known. If one sweep covers the row, such a
// kernel keeps the row in registers and reads it once (kOnce); it reads a wider row
// twice. All these choices, and so the result's bits, depend only on the row's length.

inline constexpr int kRowThreads = 256;
inline constexpr int kHeld = 8;

/// How much of a row a kernel keeps until it has read all of it. A multiprocessor has
/// 65,536 registers. A thread needs 32 of them for one sweep of an operand.
enum class Keeps {
    nothing,  ///< the kernel reads the row once, at any width
    little,   ///< one operand: 64 registers, enough for 1,024 threads
    much,     ///< two operands, or one operand and other data: 128 registers, for 512
};

/// Returns the size of the largest team that reads its row once. 1,024 threads keep
/// 32,768 columns of f32 or bf16, 512 threads keep 16,384; in f64, half of these numbers.
/// Functions like exp in f64 need many more registers. Packs that are shifted, because
/// they do not fill a row, need more, too.
template <typename T, bool kWhole>
constexpr int largest_team(Keeps keeps) {
    if (keeps == Keeps::nothing) return kRowThreads;
    return keeps == Keeps::little && sizeof(T) <= 4 && kWhole ? 1024 : 512;
}
/// The size of a team that reads its row twice. Only one or two such blocks fit on a
/// multiprocessor. So few rows are in progress, and at the second read a row may still be
/// in the L2 cache.
inline constexpr int kTeamOfTwice = 512;

/// A kernel's template argument: how the kernel reads rows of some length. A
/// multiprocessor must have room for kBlocks blocks; if kBlocks is 0, the compiler
/// chooses between blocks and registers.
template <int kWidthOf, bool kWholeOf, int kTeamOf, bool kOnceOf>
struct RowPlan {
    static constexpr int kWidth = kWidthOf;   ///< elements of a pack
    static constexpr bool kWhole = kWholeOf;  ///< whether packs fill a row
    static constexpr int kTeam = kTeamOf;     ///< threads per row
    static constexpr bool kOnce = kOnceOf;    ///< whether one sweep covers a row
    static constexpr int kThreads = kTeam > kRowThreads ? kTeam : kRowThreads;
    static constexpr int kRows = kThreads / kTeam;       ///< rows per block
    static constexpr int kRoomyBlocks = 512 / kThreads;  ///< at 128 registers a thread
    static constexpr bool kNeedsRoom = kWidth == 2 || !kWhole || !kOnce;
    static constexpr int kBlocks = kNeedsRoom ? kRoomyBlocks : 0;
};

/// The row of a thread's team, and the thread's place in the team. Arithmetic is in T;
/// matrices may be stored in another type.
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

    /// Calls f(k, pack) for this thread's packs in the sweep that begins at `base`.
    template <typename F>
    __device__ void each(std::int64_t base, const F& f) const {
#pragma unroll
        for (int k = 0; k < kHeld; ++k) {
            const std::int64_t pack = base + k * kTeam + threadIdx.x % kTeam;
            if (pack < packs_) f(k, pack);
        }
    }

    /// Returns the number of elements of the pack that are in the row.
    __device__ int count(std::int64_t pack) const {
        const std::int64_t left = shape_.columns - pack * kWidth;
        return Plan::kWhole || left > kWidth ? kWidth : static_cast<int>(left);
    }

    /// Reads this thread's packs in the sweep that begins at `base`. Elements beyond the
    /// row's end are `nothing`.
    template <typename S>
    __device__ void read(std::int64_t base, Held& held, const S* matrix,
                         T nothing = 0) const {
        each(base, [&](int k, std::int64_t pack) { load_first(held[k], matrix, pack); });
        each(base,
             [&](int k, std::int64_t pack) { complete(held[k], matrix, pack, nothing); });
    }
    /// Reads two matrices at once.
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
    /// All threads of a warp that have a pack must call this together.
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
    /// Loads the pack, or the first of the two packs from which it is made. All loads
    /// start before any load is completed, so a thread waits for memory only once. The
    /// second pack of a pair is the next thread's first pack, and is then in the L1
    /// cache.
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

    /// A full pack in memory has the end of the previous lane's pack and the beginning of
    /// this lane's pack. The beginning of the first lane's pack and the end of the last
    /// lane's pack are in no such pack: their elements are stored one by one.
    template <typename S>
    __device__ void write_shifted(S* to, std::int64_t pack, const Values& values) const {
        const int lane = static_cast<int>(threadIdx.x % kWarp);
        const std::int64_t lanes = packs_ - (pack - lane);
        const unsigned mask = lanes < kWarp ? (1U << lanes) - 1 : kAllLanes;
        // The previous pack from its second element on, then this pack.
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
    // If packs do not fill a row, each pack of the row begins shift_ elements after an
    // address at which a pack can be loaded. Each of the first pairs_ packs is shifted
    // out of two packs that are loaded at such addresses: both are in the matrix, and the
    // result is in the row. All other elements are loaded one by one. If the matrix does
    // not begin at such an address, all of its elements are loaded one by one.
    int shift_ = 0;
    std::int64_t pairs_ = 0;
};

/// Calls `body` with the plan for a row with this number of packs.
template <typename S, Keeps kKeeps, bool kWhole, typename Body>
void with_team(std::int64_t packs, const Body& body) {
    constexpr int kWidth = kFullWidth<S>;
    constexpr int kLargest = largest_team<Computed<S>, kWhole>(kKeeps);
    if (packs <= kWarp * kHeld) {
        body(RowPlan<kWidth, kWhole, kWarp, true>{});
    } else if (kKeeps == Keeps::nothing || packs <= kRowThreads * kHeld) {
        body(RowPlan<kWidth, kWhole, kRowThreads, true>{});
    } else if constexpr (kKeeps != Keeps::nothing) {
        if (packs <= kLargest * kHeld)
            body(RowPlan<kWidth, kWhole, kLargest, true>{});
        else
            body(RowPlan<kWidth, kWhole, kTeamOfTwice, false>{});
    }
}

/// Calls launch(plan, blocks) with the plan for rows of this shape.
template <typename S, Keeps kKeeps, typename Launch>
void with_plan(const MatrixShape& shape, const Launch& launch) {
    const std::int64_t packs = divided_up(shape.columns, kFullWidth<S>);
    const auto start = [&]<typename Plan>(Plan plan) {
        launch(plan, static_cast<int>(divided_up(shape.rows, Plan::kRows)));
    };
    if (shape.columns % kFullWidth<S> == 0)
        with_team<S, kKeeps, true>(packs, start);
    else
        with_team<S, kKeeps, false>(packs, start);
}

}  // namespace lockstep::gpu
