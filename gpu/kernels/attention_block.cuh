#pragma once

#include "gpu/kernels/attention_tiles.cuh"
#include "gpu/kernels/launch.cuh"

namespace lockstep::gpu {

// How a block goes through its tiles.

/// The operands that both the forward and the backward read.
template <typename T>
struct AttentionInput {
    HeadsOfOperand<const T> queries, keys, values;
    std::int64_t heads, group;
    SightOf sight;
    Computed<T> factor;

    explicit AttentionInput(const AttentionOperands& operands)
        : queries(operands.queries, operands.shape.width, kIn16Bytes),
          keys(operands.keys, operands.shape.width, kIn16Bytes),
          values(operands.values, operands.shape.width, kIn16Bytes),
          heads(operands.shape.heads),
          group(operands.shape.group),
          sight{operands.options.causal, operands.options.queries, operands.options.keys,
                operands.queries.rows, operands.keys.rows},
          factor(static_cast<Computed<T>>(operands.options.factor)) {}

    static constexpr int kIn16Bytes = 16 / static_cast<int>(sizeof(T));
};

/// The tile of a block: rows of one head of one batch.
struct Owned {
    std::int64_t batch, head, first;

    /// Blocks of one head follow each other, so that they find their shared operands in
    /// the cache.
    __device__ Owned(std::int64_t heads, std::int64_t rows, std::int64_t tile) {
        const std::int64_t tiles = divided_up(rows, tile);
        const std::int64_t index = blockIdx.x / tiles;
        batch = index / heads;
        head = index - batch * heads;
        first = (blockIdx.x - index * tiles) * tile;
    }
    /// Numbers tiles from the last one: it starts first because it sees the most keys.
    __device__ Owned last_first(std::int64_t rows, std::int64_t tile) const {
        Owned owned = *this;
        owned.first = (divided_up(rows, tile) - 1) * tile - first;
        return owned;
    }
};

/// A tile that a block goes through: the rows from `first` on.
struct SeenTile {
    std::int64_t first;
    bool masked;  ///< true if a query does not see all keys
    bool exists = true;
};

/// The seen tiles, in order. Each has kRows rows. sight(first) returns how much is seen
/// of the tile that begins at `first`. Each thread calls it for one of the next tiles.
template <int kRows, int kThreads, typename Of>
class SeenTiles {
  public:
    __device__ SeenTiles(Sight (&sights)[kThreads], std::int64_t rows, const Of& sight)
        : sights_(sights), rows_(rows), sight_(sight) {}

    /// Returns the next tile; after the last one, a tile that does not exist. All threads
    /// of the block must call it.
    __device__ SeenTile next() {
        for (; first_ < rows_; ++at_, first_ += kRows) {
            if (at_ == kThreads) ask();
            const Sight seen = sights_[at_];
            if (seen == Sight::none) continue;
            const SeenTile tile{first_, seen == Sight::some};
            ++at_, first_ += kRows;
            return tile;
        }
        return {0, false, false};
    }

  private:
    __device__ void ask() {
        __syncthreads();
        const std::int64_t mine = first_ + std::int64_t{threadIdx.x} * kRows;
        if (mine < rows_) sights_[threadIdx.x] = sight_(mine);
        __syncthreads();
        at_ = 0;
    }

    Sight (&sights_)[kThreads];
    std::int64_t rows_;
    const Of& sight_;
    std::int64_t first_ = 0;
    int at_ = kThreads;
};

/// Calls f(first, masked) for each seen tile. All threads of the block must call it.
template <int kRows, int kThreads, typename Of, typename F>
__device__ void each_seen_tile(Sight (&sights)[kThreads], std::int64_t rows,
                               const Of& sight, const F& f) {
    SeenTiles<kRows, kThreads, Of> tiles(sights, rows, sight);
    for (SeenTile tile = tiles.next(); tile.exists; tile = tiles.next())
        f(tile.first, tile.masked);
}

/// Call it before hide(): multiplying -infinity by a factor of 0 gives NaN.
template <typename T>
__device__ void scale(Patch<T>& scores, T factor) {
    for (auto& of_row : scores)
        for (T& score : of_row)
            score *= factor;
}

/// Sets a score to -infinity if unseen(the row's token, the column's token).
template <typename T, int kColumns, typename Unseen>
__device__ void hide(Patch<T>& scores, const TileMemory<T, kColumns>& memory,
                     const Unseen& unseen) {
    const Spot spot;
#pragma unroll
    for (int i = 0; i < kPatch<T>; ++i) {
        const std::int64_t row = memory.row_tokens[spot.row<T>(i)];
#pragma unroll
        for (int j = 0; j < kPatch<T>; ++j)
            if (unseen(row, memory.column_tokens[spot.column(j)]))
                scores[i][j] = -std::numeric_limits<T>::infinity();
    }
}

/// Writes the weights of a thread's patch to shared memory, for add_weighted().
template <typename T, int kColumns>
__device__ void share(TileMemory<T, kColumns>& memory, const Patch<T>& weights) {
    const Spot spot;
    // Other threads of the warp may still read the former weights.
    __syncwarp();
#pragma unroll
    for (int i = 0; i < kPatch<T>; ++i)
#pragma unroll
        for (int j = 0; j < kPatch<T>; ++j)
            memory.weights[spot.row<T>(i)][spot.column(j)] = weights[i][j];
}

/// Calls f(at, part, count) for each part of a thread's results. A part has kBeside
/// results; `count` are in the head. `at` is the part's place in rows from `first` on.
template <typename T, int kColumns, typename To, typename F>
__device__ void each_part(Results<T, kColumns>& results, const HeadMatrix<To>& matrix,
                          std::int64_t first, const F& f) {
    constexpr int kPart = kBeside<T, kColumns>;
    const Spot spot;
#pragma unroll
    for (int i = 0; i < kPatch<T>; ++i) {
        const std::int64_t row = first + spot.row<T>(i);
#pragma unroll
        for (int c = 0; c < kColumns; c += kPart) {
            const int column = c * kTileSide + spot.across * kPart;
            const int left = matrix.width - column;
            if (row < matrix.rows && left > 0)
                f(matrix.at(row, column), &results[i][c], left < kPart ? left : kPart);
        }
    }
}

/// Reads the results from the head's rows; 0 beyond the head's end.
template <typename T, int kColumns>
__device__ void read(Results<T, kColumns>& results, const HeadMatrix<T>& from,
                     std::int64_t first) {
    for (auto& of_row : results)
        for (T& result : of_row)
            result = 0;
    each_part<T, kColumns>(results, from, first, [&](const T* at, T* part, int count) {
        constexpr int kPart = kBeside<T, kColumns>;
        const auto pack = load_some<kPart>(at, count, from.vectors);
#pragma unroll
        for (int k = 0; k < kPart; ++k)
            part[k] = pack.value[k];
    });
}

/// Writes the results to the head's rows; with kAdds, adds them.
template <bool kAdds, typename T, int kColumns>
__device__ void write(const HeadMatrix<T>& to, Results<T, kColumns>& results,
                      std::int64_t first) {
    each_part<T, kColumns>(results, to, first, [&](T* at, const T* part, int count) {
        constexpr int kPart = kBeside<T, kColumns>;
        Pack<T, kPart> pack = {};
        if constexpr (kAdds) pack = load_some<kPart>(at, count, to.vectors);
#pragma unroll
        for (int k = 0; k < kPart; ++k)
            pack.value[k] += part[k];
        store_first(at, pack, count, to.vectors);
    });
}

/// Calls `body` with a constant: the least power of two such that 16 times this number
/// is at least `width`.
template <typename Body>
void with_columns(int width, const Body& body) {
    if (width <= 16)
        body(Constant<1>());
    else if (width <= 32)
        body(Constant<2>());
    else if (width <= 64)
        body(Constant<4>());
    else if (width <= 128)
        body(Constant<8>());
    else
        body(Constant<16>());
}

}  // namespace lockstep::gpu
