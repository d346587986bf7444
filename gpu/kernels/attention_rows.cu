#include <cmath>

#include "gpu/kernels/attention_tiles.cuh"
#include "gpu/kernels/launch.cuh"
#include "gpu/kernels/team.cuh"

// Kernels for each row of each head. A team of kTeam threads works on one head's row. The
// next teams have the next heads of the same row, which follow in memory.

namespace lockstep::gpu {

namespace {

constexpr int kTeam = 8;
constexpr int kTeamThreads = 256;

/// A team's row, and the thread's place in it.
template <typename T>
class HeadRow {
  public:
    __device__ HeadRow(std::int64_t batches, std::int64_t heads) {
        const std::int64_t index =
            std::int64_t{blockIdx.x} * (kTeamThreads / kTeam) + threadIdx.x / kTeam;
        const std::int64_t of_row = index / heads;
        head = index - of_row * heads;
        row = of_row / batches;
        batch = of_row - row * batches;
    }
    /// Calls f(column, count) for this thread's packs; a pack has `count` elements.
    template <typename F>
    __device__ void each(int width, const F& f) const {
        constexpr int kWidth = kFullWidth<T>;
        for (int column = static_cast<int>(threadIdx.x) % kTeam * kWidth; column < width;
             column += kTeam * kWidth)
            f(column, width - column < kWidth ? width - column : kWidth);
    }
    __device__ bool first_thread() const { return threadIdx.x % kTeam == 0; }
    /// Returns the index in (batches, heads, rows).
    __device__ std::int64_t number(std::int64_t heads, std::int64_t rows) const {
        return (batch * heads + head) * rows + row;
    }

    std::int64_t row, batch, head;
};

template <typename S, typename To>
__global__ void __launch_bounds__(kTeamThreads)
    head_row_products(To* products, HeadsOfOperand<const S> x, HeadsOfOperand<const S> y,
                      std::int64_t batches, std::int64_t heads) {
    using T = Computed<S>;
    const HeadRow<T> mine(batches, heads);
    const auto left = x.head(mine.batch, mine.head);
    const auto right = y.head(mine.batch, mine.head);
    T sum = 0;
    if (mine.row < left.rows)
        mine.each(left.width, [&](int column, int count) {
            const auto a = pack_of(left, mine.row, column);
            const auto b = pack_of(right, mine.row, column);
#pragma unroll
            for (int lane = 0; lane < kFullWidth<T>; ++lane)
                if (lane < count) sum += a.value[lane] * b.value[lane];
        });
#pragma unroll
    for (int step = kTeam / 2; step > 0; step /= 2)
        sum += __shfl_xor_sync(kAllLanes, sum, step);
    if (mine.row < left.rows && mine.first_thread())
        products[mine.number(heads, left.rows)] = static_cast<To>(sum);
}

template <typename S>
__global__ void __launch_bounds__(kTeamThreads)
    finish_rows(HeadsOfOperand<S> outputs, S* maximum, const S* sums,
                std::int64_t batches, std::int64_t heads) {
    using T = Computed<S>;
    const HeadRow<T> mine(batches, heads);
    const auto y = outputs.head(mine.batch, mine.head);
    if (mine.row >= y.rows) return;
    const std::int64_t number = mine.number(heads, y.rows);
    const T sum = sums[number];
    const T inverse = sum == 0 ? T{0} : 1 / sum;
    mine.each(y.width, [&](int column, int count) {
        S* const at = y.at(mine.row, column);
        auto pack = load_some<kFullWidth<T>>(at, count, y.vectors);
#pragma unroll
        for (T& value : pack.value)
            value *= inverse;
        store_first(at, pack, count, y.vectors);
    });
    if (mine.first_thread())
        maximum[number] = static_cast<S>(maximum[number] + std::log(sum));
}

int blocks_of(const AttentionShape& shape, std::int64_t rows) {
    return static_cast<int>(
        divided_up(rows * shape.batches * shape.heads, kTeamThreads / kTeam));
}

}  // namespace

void launch_head_row_products(cudaStream_t stream, Numbers products, const HeadRows& x,
                              const HeadRows& y, const AttentionShape& shape) {
    const auto start = [&]<typename S, typename To>(S, To) {
        launch(stream, head_row_products<S, To>, blocks_of(shape, x.rows), kTeamThreads,
               products.as<To>(), HeadsOfOperand<const S>(x, shape.width),
               HeadsOfOperand<const S>(y, shape.width), shape.batches, shape.heads);
    };
    with_type(x.tensor, [&]<typename S>(S value) {
        if (products.bytes == x.tensor.bytes) return start(value, value);
        start(value, Computed<S>{});
    });
}

void launch_finish_attention(cudaStream_t stream, const OnlineRows& state,
                             const AttentionShape& shape) {
    with_type(state.maximum, [&]<typename S>(S) {
        launch(stream, finish_rows<S>, blocks_of(shape, state.y.rows), kTeamThreads,
               HeadsOfOperand<S>(state.y, shape.width), state.maximum.as<S>(),
               state.sum.as<S>(), shape.batches, shape.heads);
    });
}

}  // namespace lockstep::gpu
