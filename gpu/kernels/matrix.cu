#include "gpu/kernels/columns.cuh"
#include "gpu/kernels/matrix.hpp"
#include "gpu/kernels/team.cuh"
#include "gpu/kernels/tiles.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

/// Calls f(value, lane, row) for the values of a thread's packs, in place.
template <int kWidth, typename S, typename F>
__device__ void update_packs(S* matrix, std::int64_t columns, const Tiles& tiles,
                             const Place& at, const F& f) {
    Pack<Computed<S>, kWidth> values[kTileRows];
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

template <typename S, int kWidth>
__global__ void __launch_bounds__(kTileThreads)
    add_bias(S* y, const S* bias, std::int64_t columns, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    const auto added = load<kWidth>(bias + at.column * kWidth, true);
    update_packs<kWidth>(
        y, columns, tiles, at,
        [&](Computed<S>& value, int lane, std::int64_t) { value += added.value[lane]; });
}

template <typename S, int kWidth>
__global__ void __launch_bounds__(kTileThreads)
    scale_rows(S* x, const S* factors, std::int64_t columns, Tiles tiles) {
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    update_packs<kWidth>(
        x, columns, tiles, at,
        [&](Computed<S>& value, int, std::int64_t row) { value *= factors[row]; });
}

constexpr int kOrthonormalThreads = 1024;

/// Modified Gram-Schmidt, each column twice. Each thread has every 1024th row. Sums over
/// all rows are in f64.
template <typename T>
__global__ void __launch_bounds__(kOrthonormalThreads)
    orthonormalize(T* x, std::int64_t rows, std::int64_t columns) {
    const auto each_row = [&](const auto& use) {
        for (std::int64_t row = threadIdx.x; row < rows; row += kOrthonormalThreads)
            use(x + row * columns);
    };
    const auto product = [&](std::int64_t one, std::int64_t other) {
        double sum = 0;
        each_row(
            [&](const T* row) { sum += static_cast<double>(row[one]) * row[other]; });
        return combined<kOrthonormalThreads>(sum, Plus{});
    };
    for (std::int64_t own = 0; own < columns; ++own) {
        const double before = product(own, own);
        for (int pass = 0; pass < 2; ++pass)
            for (std::int64_t other = 0; other < own; ++other) {
                const double along = product(other, own);
                each_row([&](T* row) {
                    row[own] = static_cast<T>(row[own] - along * row[other]);
                });
            }
        const double factor =
            formulas::unit_factor(before, product(own, own), formulas::kRounding<T>);
        each_row([&](T* row) { row[own] = static_cast<T>(factor * row[own]); });
    }
}

}  // namespace

void launch_add_bias(cudaStream_t stream, Numbers y, Numbers bias, std::int64_t rows,
                     std::int64_t columns) {
    with_type(y, [&]<typename S>(S) {
        const bool full = columns % kFullWidth<S> == 0 && aligned(y, bias);
        with_width<S>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(rows, columns / kWidth);
            launch(stream, add_bias<S, kWidth>, tiles.blocks(), kTileThreads, y.as<S>(),
                   bias.as<S>(), columns, tiles);
        });
    });
}

void launch_scale_rows(cudaStream_t stream, Numbers x, Numbers factors, std::int64_t rows,
                       std::int64_t columns) {
    with_type(x, [&]<typename S>(S) {
        const bool full = columns % kFullWidth<S> == 0 && aligned(x);
        with_width<S>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(rows, columns / kWidth);
            launch(stream, scale_rows<S, kWidth>, tiles.blocks(), kTileThreads, x.as<S>(),
                   factors.as<S>(), columns, tiles);
        });
    });
}

std::int64_t accumulate_partials(Numbers x, std::int64_t rows, std::int64_t columns) {
    return with_type(
        x, [&]<typename S>(S) { return column_slabs<S>(rows, columns) * columns; });
}

void launch_accumulate_rows(cudaStream_t stream, Numbers workspace, Numbers destination,
                            Numbers x, std::int64_t rows, std::int64_t columns) {
    with_type(x, [&]<typename S>(S) {
        const MatrixShape shape{rows, columns, aligned(x)};
        const std::int64_t slabs = column_slabs<S>(rows, columns);
        with_column_width<S>(columns, [&]<int kWidth>(Constant<kWidth>) {
            if (slabs == 1)
                return add_column_sums<kWidth>(stream, destination.as<S>(), x.as<S>(),
                                               shape);
            launch_column_sums<kWidth, false>(
                stream, workspace.as<Computed<S>>(),
                RowTerms<S, kWidth>{x.as<S>(), columns, shape.vectors}, shape, slabs);
            add_column_sums<kWidth>(stream, destination.as<S>(),
                                    workspace.as<Computed<S>>(), {slabs, columns, true});
        });
    });
}

void launch_orthonormalize(cudaStream_t stream, Numbers x, std::int64_t rows,
                           std::int64_t columns) {
    with_wide_type(x, [&]<typename T>(T) {
        launch(stream, orthonormalize<T>, 1, kOrthonormalThreads, x.as<T>(), rows,
               columns);
    });
}

}  // namespace lockstep::gpu
