#pragma once

#include "gpu/kernels/attention_block.cuh"
#include "gpu/kernels/tensor_core.cuh"

namespace lockstep::gpu {

// Attention of bf16 by tensor cores, after Dao 2023, FlashAttention-2 (2307.08691). A
// block owns 64 rows of one side in shared memory; each warp owns 16 of these rows. The
// rows of the other side are loaded tile by tile: a tile is loaded while the warps
// compute with the previous tile. A warp's results stay in its registers: a tile of
// weights (the sums of one product) already has the layout that the next product needs.

inline constexpr int kWarpRows = 16;
inline constexpr int kOwnRows = 64;
inline constexpr int kCoreThreads = kOwnRows / kWarpRows * kWarp;

/// Rows of a head in shared memory. Each row has 16 bytes of padding, so that eight rows
/// are in different banks.
template <int kRows, int kWidth>
struct SharedRows {
    alignas(16) Bf16 at[kRows][kWidth + 8];

    __device__ void start_loading(const HeadMatrix<const Bf16>& from,
                                  std::int64_t first) {
        constexpr int kPack = 8, kPacks = kWidth / kPack;
        for (int i = static_cast<int>(threadIdx.x); i < kRows * kPacks;
             i += kCoreThreads) {
            const int row = i / kPacks, column = i % kPacks * kPack;
            const bool is_there = first + row < from.rows;
            const Bf16* const source = from.at(is_there ? first + row : 0, column);
            if (from.vectors) {
                start_copy(&at[row][column], source, is_there);
                continue;
            }
#pragma unroll
            for (int k = 0; k < kPack; ++k)
                at[row][column + k] = is_there ? source[k] : Bf16();
        }
    }
};

/// The places of a thread's numbers: two rows of the block, 8 apart, and two adjacent
/// columns of every eight.
struct CoreSpot {
    int lane = static_cast<int>(threadIdx.x) % kWarp;
    int first_row = static_cast<int>(threadIdx.x) / kWarp * kWarpRows;
    __device__ int row(int i) const { return first_row + lane / 4 + 8 * i; }
    __device__ int column(int of_eight) const { return 8 * of_eight + lane % 4 * 2; }
};

/// A thread's part of a warp's 16 rows x kColumns: columns column(n) and column(n) + 1 of
/// row(i) are at [n][2 i] and [n][2 i + 1].
template <int kColumns>
using CoreSums = float[kColumns / 8][4];

/// Calls f(number, i, column) for each number of a thread.
template <int kEights, typename F>
__device__ void each_number(float (&numbers)[kEights][4], const F& f) {
    const CoreSpot spot;
#pragma unroll
    for (int n = 0; n < kEights; ++n)
#pragma unroll
        for (int k = 0; k < 4; ++k)
            f(numbers[n][k], k / 2, spot.column(n) + k % 2);
}

/// sums = the products of the warp's rows and the tile's columns, each `kWidth` long.
template <int kEights, int kRows, int kColumns, int kWidth>
__device__ void multiply(float (&sums)[kEights][4], const SharedRows<kRows, kWidth>& rows,
                         const SharedRows<kColumns, kWidth>& columns) {
    static_assert(kColumns == 8 * kEights);
    const CoreSpot spot;
    each_number(sums, [](float& sum, int, int) { sum = 0; });
    const Bf16* const row = &rows.at[spot.first_row + spot.lane % 16][spot.lane / 16 * 8];
    const Bf16* const column =
        &columns.at[spot.lane % 8 + spot.lane / 16 * 8][spot.lane / 8 % 2 * 8];
#pragma unroll
    for (int k = 0; k < kWidth; k += 16) {
        Bf16Pair a[4];
        load_matrices(a, row + k);
#pragma unroll
        for (int n = 0; n < kColumns; n += 16) {
            Bf16Pair b[4];
            load_matrices(b, column + n * (kWidth + 8) + k);
            multiply_add(sums[n / 8], a, b[0], b[1]);
            multiply_add(sums[n / 8 + 1], a, b[2], b[3]);
        }
    }
}

/// results += the weights, rounded to bf16, times the tile's rows.
template <int kWidthEights, int kEights, int kColumns, int kWidth>
__device__ void add_weighted(float (&results)[kWidthEights][4],
                             const float (&weights)[kEights][4],
                             const SharedRows<kColumns, kWidth>& rows) {
    static_assert(kColumns == 8 * kEights && kWidth == 8 * kWidthEights);
    const CoreSpot spot;
    const Bf16* const row = &rows.at[spot.lane % 16][spot.lane / 16 * 8];
#pragma unroll
    for (int k = 0; k < kColumns; k += 16) {
        const auto& left = weights[k / 8];
        const auto& right = weights[k / 8 + 1];
        const Bf16Pair a[4] = {pair_of(left[0], left[1]), pair_of(left[2], left[3]),
                               pair_of(right[0], right[1]), pair_of(right[2], right[3])};
#pragma unroll
        for (int n = 0; n < kWidth; n += 16) {
            Bf16Pair b[4];
            load_transposed(b, row + k * (kWidth + 8) + n);
            multiply_add(results[n / 8], a, b[0], b[1]);
            multiply_add(results[n / 8 + 1], a, b[2], b[3]);
        }
    }
}

/// Sets a score to -infinity if unseen(the row's token, the column's token).
template <int kEights, typename Unseen>
__device__ void hide(float (&scores)[kEights][4], const std::int64_t* row_tokens,
                     const std::int64_t* column_tokens, const Unseen& unseen) {
    const CoreSpot spot;
    const std::int64_t of_rows[2] = {row_tokens[spot.row(0)], row_tokens[spot.row(1)]};
    each_number(scores, [&](float& score, int i, int column) {
        if (unseen(of_rows[i], column_tokens[column]))
            score = -std::numeric_limits<float>::infinity();
    });
}

/// Calls f(at, part) for each part of a thread's results. A part is two results; `at` is
/// the part's place in the head's rows from `first` on.
template <int kEights, typename To, typename F>
__device__ void each_part(float (&results)[kEights][4], const HeadMatrix<To>& matrix,
                          std::int64_t first, const F& f) {
    const CoreSpot spot;
#pragma unroll
    for (int i = 0; i < 2; ++i) {
        const std::int64_t row = first + spot.row(i);
        if (row >= matrix.rows) continue;
#pragma unroll
        for (int n = 0; n < kEights; ++n)
            f(matrix.at(row, spot.column(n)), &results[n][2 * i]);
    }
}

/// Adds the results to the head's rows from `first` on.
template <int kEights, typename To>
__device__ void add(const HeadMatrix<To>& to, float (&results)[kEights][4],
                    std::int64_t first) {
    each_part(results, to, first, [&](To* at, const float* part) {
        auto pack = load<2>(at, to.vectors);
        pack.value[0] += part[0];
        pack.value[1] += part[1];
        store(at, pack, to.vectors);
    });
}

/// Calls use(at, tile) for each seen tile. One tile earlier, load(at, tile) has started
/// the tile's copies; `at` alternates between two places. All threads of the block must
/// call this.
template <typename Tiles, typename Load, typename Use>
__device__ void each_tile_ahead(Tiles& tiles, const Load& load, const Use& use) {
    int at = 0;
    SeenTile tile = tiles.next();
    if (tile.exists) load(at, tile);
    end_group_of_copies();
    while (tile.exists) {
        const SeenTile next = tiles.next();
        if (next.exists) load(1 - at, next);
        end_group_of_copies();
        wait_for_all_but_last_group();
        __syncthreads();
        use(at, tile);
        // This place will be loaded again.
        __syncthreads();
        tile = next;
        at = 1 - at;
    }
    // If no tile was seen, copies of the block's own rows may still be on their way.
    end_group_of_copies();
    wait_for_all_but_last_group();
}

}  // namespace lockstep::gpu
