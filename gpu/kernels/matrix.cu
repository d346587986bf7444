#include "gpu/kernels/columns.cuh"
#include "gpu/kernels/matrix.hpp"
#include "gpu/kernels/tiles.cuh"

namespace lockstep::gpu {

namespace {

template <typename T, int kWidth>
__global__ void __launch_bounds__(kTileThreads)
    add_bias(T* y, const T* bias, std::int64_t columns, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    const Pack<T, kWidth> added = load<kWidth>(bias + at.column * kWidth, true);
    Pack<T, kWidth> values[kTileRows];
#pragma unroll
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        values[u] = load<kWidth>(y + row * columns + at.column * kWidth, true);
    }
#pragma unroll
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane)
            values[u].value[lane] += added.value[lane];
        store(y + row * columns + at.column * kWidth, values[u], true);
    }
}

}  // namespace

template <typename T>
void launch_add_bias(cudaStream_t stream, T* y, const T* bias, std::int64_t rows,
                     std::int64_t columns) {
    const bool full = columns % kFullWidth<T> == 0 && aligned(y, bias);
    with_width<T>(full, [&]<int kWidth>(Constant<kWidth>) {
        const Tiles tiles(rows, columns / kWidth);
        launch(stream, add_bias<T, kWidth>, tiles.blocks(), kTileThreads, y, bias,
               columns, tiles);
    });
}

template <typename T>
std::int64_t accumulate_partials(std::int64_t rows, std::int64_t columns) {
    return column_slabs<T>(rows, columns) * columns;
}

template <typename T>
void launch_accumulate_rows(cudaStream_t stream, T* workspace, T* destination, const T* x,
                            std::int64_t rows, std::int64_t columns) {
    const MatrixShape shape{rows, columns, aligned(x)};
    const std::int64_t slabs = column_slabs<T>(rows, columns);
    with_column_width<T>(columns, [&]<int kWidth>(Constant<kWidth>) {
        if (slabs == 1) return add_column_sums<kWidth>(stream, destination, x, shape);
        launch_column_sums<kWidth, false>(stream, workspace,
                                          RowTerms<T, kWidth>{x, columns, shape.vectors},
                                          shape, slabs);
        add_column_sums<kWidth>(stream, destination, workspace, {slabs, columns, true});
    });
}

template void launch_add_bias(cudaStream_t, float*, const float*, std::int64_t,
                              std::int64_t);
template void launch_add_bias(cudaStream_t, double*, const double*, std::int64_t,
                              std::int64_t);
template std::int64_t accumulate_partials<float>(std::int64_t, std::int64_t);
template std::int64_t accumulate_partials<double>(std::int64_t, std::int64_t);
template void launch_accumulate_rows(cudaStream_t, float*, float*, const float*,
                                     std::int64_t, std::int64_t);
template void launch_accumulate_rows(cudaStream_t, double*, double*, const double*,
                                     std::int64_t, std::int64_t);

}  // namespace lockstep::gpu
