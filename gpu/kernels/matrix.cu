#include "gpu/kernels/columns.cuh"
#include "gpu/kernels/matrix.hpp"
#include "gpu/kernels/tiles.cuh"

namespace lockstep::gpu {

namespace {

/// f(value, lane, row) for the values of a thread's packs, in place.
template <int kWidth, typename T, typename F>
__device__ void update_packs(T* matrix, std::int64_t columns, const Tiles& tiles,
                             const Place& at, const F& f) {
    Pack<T, kWidth> values[kTileRows];
#pragma unroll
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        values[u] = load<kWidth>(matrix + row * columns + at.column * kWidth, true);
    }
#pragma unroll
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane)
            f(values[u].value[lane], lane, row);
        store(matrix + row * columns + at.column * kWidth, values[u], true);
    }
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kTileThreads)
    add_bias(T* y, const T* bias, std::int64_t columns, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    const Pack<T, kWidth> added = load<kWidth>(bias + at.column * kWidth, true);
    update_packs<kWidth>(y, columns, tiles, at, [&](T& value, int lane, std::int64_t) {
        value += added.value[lane];
    });
}

template <typename T, int kWidth>
__global__ void __launch_bounds__(kTileThreads)
    scale_rows(T* x, const T* factors, std::int64_t columns, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    update_packs<kWidth>(x, columns, tiles, at,
                         [&](T& value, int, std::int64_t row) { value *= factors[row]; });
}

}  // namespace

void launch_add_bias(cudaStream_t stream, Numbers y, Numbers bias, std::int64_t rows,
                     std::int64_t columns) {
    with_type(y, [&]<typename T>(T) {
        const bool full = columns % kFullWidth<T> == 0 && aligned(y, bias);
        with_width<T>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(rows, columns / kWidth);
            launch(stream, add_bias<T, kWidth>, tiles.blocks(), kTileThreads, y.as<T>(),
                   bias.as<T>(), columns, tiles);
        });
    });
}

void launch_scale_rows(cudaStream_t stream, Numbers x, Numbers factors, std::int64_t rows,
                       std::int64_t columns) {
    with_type(x, [&]<typename T>(T) {
        const bool full = columns % kFullWidth<T> == 0 && aligned(x);
        with_width<T>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(rows, columns / kWidth);
            launch(stream, scale_rows<T, kWidth>, tiles.blocks(), kTileThreads, x.as<T>(),
                   factors.as<T>(), columns, tiles);
        });
    });
}

std::int64_t accumulate_partials(Numbers x, std::int64_t rows, std::int64_t columns) {
    return with_type(
        x, [&]<typename T>(T) { return column_slabs<T>(rows, columns) * columns; });
}

void launch_accumulate_rows(cudaStream_t stream, Numbers workspace, Numbers destination,
                            Numbers x, std::int64_t rows, std::int64_t columns) {
    with_type(workspace, [&]<typename T>(T) {
        const MatrixShape shape{rows, columns, aligned(x)};
        const std::int64_t slabs = column_slabs<T>(rows, columns);
        with_column_width<T>(columns, [&]<int kWidth>(Constant<kWidth>) {
            if (slabs == 1)
                return add_column_sums<kWidth>(stream, destination.as<T>(), x.as<T>(),
                                               shape);
            launch_column_sums<kWidth, false>(
                stream, workspace.as<T>(),
                RowTerms<T, kWidth>{x.as<T>(), columns, shape.vectors}, shape, slabs);
            add_column_sums<kWidth>(stream, destination.as<T>(), workspace.as<T>(),
                                    {slabs, columns, true});
        });
    });
}

}  // namespace lockstep::gpu
