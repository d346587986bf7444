#include <cmath>
#include <limits>

#include "gpu/kernels/attention_block.cuh"
#include "gpu/kernels/team.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

template <typename T>
struct Forward : AttentionInput<T> {
    HeadsOfOperand<T> y;
    T* maximum;
    T* sum;
};

/// Applies op to the values of the 16 threads that share rows of a tile; all get the same
/// bits.
template <typename T, typename Op>
__device__ T across(T value, const Op& op) {
#pragma unroll
    for (int step = kTileSide / 2; step > 0; step /= 2)
        value = op(value, __shfl_xor_sync(kAllLanes, value, step));
    return value;
}

/// The online softmax of a thread's rows (Milakov & Gimelshein, 1805.02867, algorithm 3).
template <typename T, int kColumns>
struct OnlineSoftmax {
    T maximum[kPatch<T>];
    /// Each row's sum over the thread's columns; the first thread adds the state's sum.
    T sum[kPatch<T>];
    Results<T, kColumns> y;

    /// Reads the state of one head's rows from `first` on: y, and the numbers at `maxima`
    /// and `sums`.
    __device__ OnlineSoftmax(const HeadMatrix<T>& from, const T* maxima, const T* sums,
                             std::int64_t first) {
        read<T, kColumns>(y, from, first);
        const Spot spot;
#pragma unroll
        for (int i = 0; i < kPatch<T>; ++i) {
            const std::int64_t row = first + spot.row<T>(i);
            const bool there = row < from.rows;
            maximum[i] = there ? maxima[row] : -std::numeric_limits<T>::infinity();
            sum[i] = there && spot.across == 0 ? sums[row] : T{0};
        }
    }

    __device__ void write_to(const HeadMatrix<T>& to, T* maxima, T* sums,
                             std::int64_t first) {
        write<false, T, kColumns>(to, y, first);
        const Spot spot;
#pragma unroll
        for (int i = 0; i < kPatch<T>; ++i) {
            const std::int64_t row = first + spot.row<T>(i);
            const T whole = across(sum[i], Plus{});
            if (spot.across != 0 || row >= to.rows) continue;
            maxima[row] = maximum[i];
            sums[row] = whole;
        }
    }

    /// Replaces each score by exp(score - maximum), with the maximum of all scores so
    /// far.
    __device__ void take_in(Patch<T>& scores) {
#pragma unroll
        for (int i = 0; i < kPatch<T>; ++i) {
            T larger = maximum[i];
#pragma unroll
            for (int j = 0; j < kPatch<T>; ++j)
                larger = Larger{}(larger, scores[i][j]);
            larger = across(larger, Larger{});
            const T rescaling = formulas::rescaling(maximum[i], larger);
            const T off = formulas::taken_off(larger);
            maximum[i] = larger;
            sum[i] *= rescaling;
#pragma unroll
            for (int j = 0; j < kPatch<T>; ++j) {
                scores[i][j] = std::exp(scores[i][j] - off);
                sum[i] += scores[i][j];
            }
#pragma unroll
            for (int c = 0; c < kColumns; ++c)
                y[i][c] *= rescaling;
        }
    }
};

template <typename T, int kColumns>
__global__ void __launch_bounds__(kAttentionThreads, blocks_at_once<kColumns>(1))
    attend_tile(Forward<T> forward) {
    __shared__ TileMemory<T, kColumns> memory;
    const SightOf& sight = forward.sight;
    const std::int64_t m = sight.query_rows, n = sight.key_rows;
    const Owned own = Owned(forward.heads, m, kTile<T>).last_first(m, kTile<T>);
    const auto q = forward.queries.head(own.batch, own.head);
    const auto k = forward.keys.head(own.batch, own.head / forward.group);
    const auto v = forward.values.head(own.batch, own.head / forward.group);
    const auto y = forward.y.head(own.batch, own.head);
    const std::int64_t numbers = (own.batch * forward.heads + own.head) * m;
    OnlineSoftmax<T, kColumns> online(y, forward.maximum + numbers, forward.sum + numbers,
                                      own.first);
    if (threadIdx.x < kTile<T>)
        memory.row_tokens[threadIdx.x] = sight.query_token(own.first + threadIdx.x);

    const auto seen = [&](std::int64_t first) {
        return sight.of_tile(own.first, kTile<T>, first, kTile<T>, first + kTile<T> <= n);
    };
    each_seen_tile<kTile<T>>(
        memory.sights, n, seen, [&](std::int64_t first, bool masked) {
            if (masked && threadIdx.x < kTile<T>)
                memory.column_tokens[threadIdx.x] = sight.key_token(first + threadIdx.x);
            Patch<T> scores;
            multiply(scores, memory, q, own.first, k, first);
            scale(scores, forward.factor);
            if (masked)
                hide(scores, memory,
                     [](std::int64_t query, std::int64_t key) { return key > query; });
            online.take_in(scores);
            share(memory, scores);
            add_weighted(online.y, memory, v, first);
        });
    online.write_to(y, forward.maximum + numbers, forward.sum + numbers, own.first);
}

template <typename T>
void launch_tiles(cudaStream_t stream, int blocks, const Forward<T>& forward) {
    with_columns(forward.queries.width, [&]<int kColumns>(Constant<kColumns>) {
        launch(stream, attend_tile<T, kColumns>, blocks, kAttentionThreads, forward);
    });
}

}  // namespace

void launch_attend(cudaStream_t stream, const OnlineRows& state,
                   const AttentionOperands& operands) {
    const AttentionShape& shape = operands.shape;
    if (operands.queries.tensor.bytes == sizeof(Bf16))
        return launch_attend_in_bf16(stream, state, operands);
    with_wide_type(state.maximum, [&]<typename T>(T) {
        const Forward<T> forward{AttentionInput<T>(operands),
                                 HeadsOfOperand<T>(state.y, shape.width),
                                 state.maximum.as<T>(), state.sum.as<T>()};
        const std::int64_t tiles = divided_up(operands.queries.rows, kTile<T>);
        launch_tiles(stream, static_cast<int>(tiles * shape.heads * shape.batches),
                     forward);
    });
}

}  // namespace lockstep::gpu
