#pragma once

#include "gpu/kernels/pack.cuh"

namespace lockstep::gpu {

inline constexpr int kTileThreads = 256;
/// Rows of a tile per thread; the thread loads them at the same time.
inline constexpr int kTileRows = 4;

/// How blocks divide a matrix of `rows` x `packs` into tiles. A tile's width is a power
/// of two: the row's width rounded up, at most the block's size. A thread stays in its
/// column; its rows are `height` apart. So a place needs one division per thread, not one
/// per element.
struct Tiles {
    std::int64_t rows;
    std::int64_t packs;
    int log_width = 0;
    std::int64_t across = 1;

    Tiles(std::int64_t matrix_rows, std::int64_t row_packs)
        : rows(matrix_rows), packs(row_packs) {
        while ((1 << log_width) < kTileThreads && (1 << log_width) < packs)
            ++log_width;
        across = divided_up(packs, 1 << log_width);
    }
    int blocks() const {
        const int height = kTileThreads >> log_width;
        return static_cast<int>(across * divided_up(rows, height * kTileRows));
    }
};

/// A thread's place in the tiles.
struct Place {
    std::int64_t column;
    std::int64_t row;
    int height;  ///< distance between a thread's rows

    __device__ explicit Place(const Tiles& tiles)
        : height(kTileThreads >> tiles.log_width) {
        const auto thread = static_cast<int>(threadIdx.x);
        const std::int64_t down = blockIdx.x / tiles.across;
        column = ((blockIdx.x - down * tiles.across) << tiles.log_width) +
                 (thread & ((1 << tiles.log_width) - 1));
        row = down * height * kTileRows + (thread >> tiles.log_width);
    }
};

}  // namespace lockstep::gpu
