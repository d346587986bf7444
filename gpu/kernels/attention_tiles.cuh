#pragma once

#include "gpu/kernels/attention.hpp"
#include "gpu/kernels/attention_sight.cuh"
#include "gpu/kernels/pack.cuh"

namespace lockstep::gpu {

// The parts of attention's kernels. A tile has `rows`, from the side that the block owns,
// and `columns`, from the side that the block goes through. Both are rows of heads with
// `width` elements. The block is 16 x 16 threads. A thread has a patch of the tile's
// scores: kPatch adjacent rows, and every 16th column.

inline constexpr int kTileSide = 16;
inline constexpr int kAttentionThreads = kTileSide * kTileSide;

/// The number of rows, and of columns, of a patch. It is also the number of elements of a
/// pack: so four numbers of f32, or two of f64, are read at once from either side.
template <typename T>
inline constexpr int kPatch = kFullWidth<T>;
template <typename T>
inline constexpr int kTile = kPatch<T>* kTileSide;
/// How many columns of a head are in shared memory at once, to compute scores.
inline constexpr int kSlab = 32;
/// The pitch of rows in shared memory: a pack more than kSlab, to use different banks.
template <typename T>
inline constexpr int kSlabPitch = kSlab + kFullWidth<T>;
/// Returns the number of rows of values that fit into 16 KB at full width.
template <typename T, int kColumns>
constexpr int value_rows() {
    constexpr int kFit = 16384 / (kTileSide * kColumns * int{sizeof(T)});
    return kFit < kTile<T> ? kFit : kTile<T>;
}

template <typename T>
using Patch = T[kPatch<T>][kPatch<T>];
/// A thread's rows of results, each with kColumns columns of the width.
template <typename T, int kColumns>
using Results = T[kPatch<T>][kColumns];

/// Returns how many blocks a multiprocessor should hold at once: two, if the results (in
/// `arrays` arrays) leave enough registers. Then one block computes while the other waits
/// for memory.
template <int kColumns>
constexpr int blocks_at_once(int arrays) {
    return arrays * kColumns <= 8 ? 2 : 1;
}

/// The place of a thread's patch in the tile.
struct Spot {
    int across = static_cast<int>(threadIdx.x) % kTileSide;
    int down = static_cast<int>(threadIdx.x) / kTileSide;
    template <typename T>
    __device__ int row(int i) const {
        return down * kPatch<T> + i;
    }
    __device__ int column(int j) const { return across + kTileSide * j; }
};

/// One head of one operand.
template <typename T>
struct HeadMatrix {
    T* data;
    std::int64_t rows;
    std::int64_t pitch;
    int width;
    bool vectors;  ///< whether rows begin and end at full packs

    __device__ T* at(std::int64_t row, int column) const {
        return data + row * pitch + column;
    }
};

template <typename T>
struct HeadsOfOperand {
    T* data;
    std::int64_t rows, pitch, batch;  ///< as in HeadRows
    int width;
    bool vectors;

    /// `pack` is the number of elements that are moved at once.
    HeadsOfOperand(const HeadRows& operand, int head_width, int pack = kFullWidth<T>)
        : data(operand.tensor.as<T>() + operand.first),
          rows(operand.rows),
          pitch(operand.pitch),
          batch(operand.batch),
          width(head_width),
          vectors(aligned(data) && pitch % pack == 0 && batch % pack == 0 &&
                  width % pack == 0) {}
    __device__ HeadMatrix<T> head(std::int64_t of_batch, std::int64_t index) const {
        return {data + of_batch * batch + index * width, rows, pitch, width, vectors};
    }
};

/// The shared memory of a block.
template <typename T, int kColumns>
struct TileMemory {
    struct Slabs {
        T rows[kTile<T>][kSlabPitch<T>];
        T columns[kTile<T>][kSlabPitch<T>];
    };
    /// Indexed by row and column of the tile.
    alignas(16) T weights[kTile<T>][kTile<T> + kFullWidth<T>];
    union {
        alignas(16) Slabs slabs;
        alignas(16) T values[value_rows<T, kColumns>()][kTileSide * kColumns];
    };
    std::int64_t row_tokens[kTile<T>];
    std::int64_t column_tokens[kTile<T>];
    Sight sights[kAttentionThreads];
};

/// Returns the first `count` elements of a pack, then zeros.
template <int kWidth, typename S>
__device__ Pack<Computed<S>, kWidth> load_some(const S* from, int count, bool vectors) {
    return count == kWidth ? load<kWidth>(from, vectors)
                           : load_rest<kWidth>(from, 0, count);
}

/// Returns a pack of a head's row; zeros beyond the row's end.
template <typename S>
__device__ Pack<Computed<S>, kFullWidth<S>> pack_of(const HeadMatrix<const S>& from,
                                                    std::int64_t row, int column) {
    constexpr int kWidth = kFullWidth<S>;
    const int left = from.width - column;
    if (row >= from.rows || left <= 0) return {};
    return load_some<kWidth>(from.at(row, column), left < kWidth ? left : kWidth,
                             from.vectors);
}

/// Copies kRows rows of kPacks packs into shared memory; zeros beyond the head's end.
template <int kRows, int kPacks, int kPitch, typename T>
__device__ void fill(T* to, const HeadMatrix<const T>& from, std::int64_t row,
                     int column) {
    constexpr int kWidth = kFullWidth<T>;
    constexpr int kSteps = kRows * kPacks / kAttentionThreads;
    static_assert(kSteps * kAttentionThreads == kRows * kPacks);
    Pack<T, kWidth> held[kSteps];
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const int at = step * kAttentionThreads + static_cast<int>(threadIdx.x);
        held[step] = pack_of(from, row + at / kPacks, column + at % kPacks * kWidth);
    }
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
        const int at = step * kAttentionThreads + static_cast<int>(threadIdx.x);
        store(to + at / kPacks * kPitch + at % kPacks * kWidth, held[step], true);
    }
}

/// patch = the products of rows from `row` on with columns from `column` on.
template <typename T, int kColumns>
__device__ void multiply(Patch<T>& patch, TileMemory<T, kColumns>& memory,
                         const HeadMatrix<const T>& rows, std::int64_t row,
                         const HeadMatrix<const T>& columns, std::int64_t column) {
    constexpr int kWidth = kFullWidth<T>;
    const Spot spot;
    auto& slabs = memory.slabs;
    for (auto& of_row : patch)
        for (T& product : of_row)
            product = 0;
    for (int from = 0; from < rows.width; from += kSlab) {
        __syncthreads();
        fill<kTile<T>, kSlab / kWidth, kSlabPitch<T>>(slabs.rows[0], rows, row, from);
        fill<kTile<T>, kSlab / kWidth, kSlabPitch<T>>(slabs.columns[0], columns, column,
                                                      from);
        __syncthreads();
        const int left = rows.width - from < kSlab ? rows.width - from : kSlab;
        for (int at = 0; at < left; at += kWidth) {
            Pack<T, kWidth> a[kPatch<T>];
#pragma unroll
            for (int i = 0; i < kPatch<T>; ++i)
                a[i] = load<kWidth>(&slabs.rows[spot.row<T>(i)][at], true);
#pragma unroll
            for (int j = 0; j < kPatch<T>; ++j) {
                const auto b = load<kWidth>(&slabs.columns[spot.column(j)][at], true);
#pragma unroll
                for (int i = 0; i < kPatch<T>; ++i)
#pragma unroll
                    for (int lane = 0; lane < kWidth; ++lane)
                        patch[i][j] =
                            multiply_add(a[i].value[lane], b.value[lane], patch[i][j]);
            }
        }
    }
}

/// The number of adjacent columns that a thread has in its results.
template <typename T, int kColumns>
inline constexpr int kBeside = kColumns < kFullWidth<T> ? kColumns : kFullWidth<T>;

/// results += the tile's weights times the values from `first` on. The weights of a
/// thread's rows come from 16 threads of its warp.
template <typename T, int kColumns>
__device__ void add_weighted(Results<T, kColumns>& results,
                             TileMemory<T, kColumns>& memory,
                             const HeadMatrix<const T>& values, std::int64_t first) {
    constexpr int kWidth = kFullWidth<T>, kPart = kBeside<T, kColumns>;
    constexpr int kRows = value_rows<T, kColumns>(), kAll = kTileSide * kColumns;
    const Spot spot;
    const std::int64_t left = values.rows - first;
    for (int from = 0; from < kTile<T> && from < left; from += kRows) {
        __syncthreads();
        fill<kRows, kAll / kWidth, kAll>(memory.values[0], values, first + from, 0);
        __syncthreads();
#pragma unroll 2
        for (int at = 0; at < kRows; at += kWidth) {
            Pack<T, kWidth> weights[kPatch<T>];
#pragma unroll
            for (int i = 0; i < kPatch<T>; ++i)
                weights[i] =
                    load<kWidth>(&memory.weights[spot.row<T>(i)][from + at], true);
#pragma unroll
            for (int lane = 0; lane < kWidth; ++lane)
#pragma unroll
                for (int c = 0; c < kColumns; c += kPart) {
                    const auto value = load<kPart>(
                        &memory.values[at + lane][c * kTileSide + spot.across * kPart],
                        true);
#pragma unroll
                    for (int i = 0; i < kPatch<T>; ++i)
#pragma unroll
                        for (int k = 0; k < kPart; ++k)
                            results[i][c + k] =
                                multiply_add(weights[i].value[lane], value.value[k],
                                             results[i][c + k]);
                }
        }
    }
}

}  // namespace lockstep::gpu
