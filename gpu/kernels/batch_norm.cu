#include "gpu/kernels/batch_norm.hpp"
#include "gpu/kernels/columns.cuh"
#include "gpu/kernels/move.hpp"
#include "gpu/kernels/tiles.cuh"
#include "src/device/formulas.hpp"

namespace lockstep::gpu {

namespace {

/// Squared distances from the columns' means, as terms.
template <typename S, int kWidth>
struct SquareTerms {
    using T = Computed<S>;
    static constexpr int kSums = 1;
    const S* x;
    const T* batch;  ///< the sums, then the number of rows
    std::int64_t columns;
    bool vectors;

    __device__ void add(Pack<T, kWidth> (&sums)[1], std::int64_t row,
                        std::int64_t column) const {
        const Pack<T, kWidth> values = load<kWidth>(x + row * columns + column, vectors);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
            const T mean = batch[column + lane] / batch[columns];
            const T deviation = values.value[lane] - mean;
            sums[0].value[lane] += deviation * deviation;
        }
    }
};

/// dy, and dy times the normalized x, as terms.
template <typename S, int kWidth>
struct BatchGradientTerms {
    using T = Computed<S>;
    static constexpr int kSums = 2;
    const S* dy;
    BatchOperands operands;
    bool vectors;

    __device__ void add(Pack<T, kWidth> (&sums)[2], std::int64_t row,
                        std::int64_t column) const {
        const std::int64_t at = row * operands.columns + column;
        const Pack<T, kWidth> x = load<kWidth>(operands.x.as<S>() + at, vectors);
        const Pack<T, kWidth> gradient = load<kWidth>(dy + at, vectors);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
            const T mean = operands.mean.as<T>()[column + lane];
            const T rstd = operands.rstd.as<T>()[column + lane];
            sums[0].value[lane] += gradient.value[lane];
            sums[1].value[lane] += gradient.value[lane] * ((x.value[lane] - mean) * rstd);
        }
    }
};

/// destination (kSums, columns) = the sums of the terms over the rows.
template <typename S, int kWidth, typename Terms>
void sum_columns(cudaStream_t stream, Numbers workspace, Numbers destination,
                 const Terms& terms, const MatrixShape& shape) {
    using T = Computed<S>;
    const std::int64_t slabs = column_slabs<S>(shape.rows, shape.columns);
    launch_column_sums<kWidth, false>(stream, workspace.as<T>(), terms, shape, slabs);
    const MatrixShape partials{slabs, shape.columns, true};
    for (int s = 0; s < Terms::kSums; ++s) {
        const T* of_slabs = workspace.as<T>() + s * slabs * shape.columns;
        launch_column_sums<kWidth, false>(
            stream, destination.as<T>() + s * shape.columns,
            RowTerms<T, kWidth>{of_slabs, shape.columns, true}, partials, 1);
    }
}

template <typename T>
__global__ void __launch_bounds__(kTileThreads)
    batch_moments(BatchMomentsOperands operands, T momentum, T epsilon) {
    const std::int64_t j = std::int64_t{blockIdx.x} * kTileThreads + threadIdx.x;
    if (j >= operands.columns) return;
    const T rows = operands.sums.as<T>()[operands.columns];
    const formulas::Moments<T> moments(operands.sums.as<T>()[j],
                                       operands.squares.as<T>()[j], rows, epsilon);
    operands.mean.as<T>()[j] = moments.mean;
    operands.rstd.as<T>()[j] = moments.rstd;
    if (operands.running_mean.data == nullptr) return;
    T& mean = operands.running_mean.as<T>()[j];
    T& variance = operands.running_variance.as<T>()[j];
    mean = formulas::running_statistic(mean, moments.mean, momentum, rows);
    variance = formulas::running_statistic(variance, moments.unbiased, momentum, rows);
}

template <typename S, int kWidth>
__global__ void __launch_bounds__(kTileThreads)
    batch_norm(S* y, BatchOperands operands, const S* weight, const S* bias,
               Tiles tiles) {
    using T = Computed<S>;
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    const std::int64_t column = at.column * kWidth;
    const auto mean = load<kWidth>(operands.mean.as<const T>() + column, false);
    const auto rstd = load<kWidth>(operands.rstd.as<const T>() + column, false);
    const auto gain = load<kWidth>(weight + column, false);
    const auto shift = load<kWidth>(bias + column, false);
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        const std::int64_t begin = row * operands.columns + column;
        auto values = load<kWidth>(operands.x.as<const S>() + begin, true);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane)
            values.value[lane] = (values.value[lane] - mean.value[lane]) *
                                     rstd.value[lane] * gain.value[lane] +
                                 shift.value[lane];
        store(y + begin, values, true);
    }
}

template <typename S, int kWidth>
__global__ void __launch_bounds__(kTileThreads)
    batch_norm_backward(S* dx, const S* dy, BatchOperands operands, const S* weight,
                        const Computed<S>* sums, const Computed<S>* count, Tiles tiles) {
    using T = Computed<S>;
    const Place at(tiles);
    if (at.column >= tiles.packs) return;
    const std::int64_t column = at.column * kWidth;
    const auto mean = load<kWidth>(operands.mean.as<const T>() + column, false);
    const auto rstd = load<kWidth>(operands.rstd.as<const T>() + column, false);
    const auto gain = load<kWidth>(weight + column, false);
    auto along_ones = load<kWidth>(sums + column, false);
    auto along_x = load<kWidth>(sums + operands.columns + column, false);
#pragma unroll
    for (int lane = 0; lane < kWidth; ++lane) {
        along_ones.value[lane] /= *count;
        along_x.value[lane] /= *count;
    }
    for (int u = 0; u < kTileRows; ++u) {
        const std::int64_t row = at.row + u * at.height;
        if (row >= tiles.rows) break;
        const std::int64_t begin = row * operands.columns + column;
        const auto x = load<kWidth>(operands.x.as<const S>() + begin, true);
        auto values = load<kWidth>(dy + begin, true);
#pragma unroll
        for (int lane = 0; lane < kWidth; ++lane) {
            const T normalized = (x.value[lane] - mean.value[lane]) * rstd.value[lane];
            values.value[lane] = rstd.value[lane] * gain.value[lane] *
                                 (values.value[lane] - along_ones.value[lane] -
                                  normalized * along_x.value[lane]);
        }
        store(dx + begin, values, true);
    }
}

}  // namespace

std::int64_t batch_partials(const BatchOperands& operands) {
    return with_type(operands.x, [&]<typename S>(S) {
        return column_slabs<S>(operands.rows, operands.columns) * operands.columns;
    });
}

void launch_batch_sums(cudaStream_t stream, Numbers workspace, Numbers sums,
                       const BatchOperands& operands) {
    with_type(operands.x, [&]<typename S>(S) {
        using T = Computed<S>;
        const MatrixShape shape{operands.rows, operands.columns, aligned(operands.x)};
        with_column_width<S>(operands.columns, [&]<int kWidth>(Constant<kWidth>) {
            const RowTerms<S, kWidth> terms{operands.x.as<const S>(), operands.columns,
                                            shape.vectors};
            sum_columns<S, kWidth>(stream, workspace, sums, terms, shape);
        });
        launch_fill(stream, sums.as<T>() + operands.columns, 1,
                    static_cast<T>(operands.rows));
    });
}

void launch_batch_squares(cudaStream_t stream, Numbers workspace, Numbers squares,
                          const BatchOperands& operands, Numbers sums) {
    with_type(operands.x, [&]<typename S>(S) {
        const MatrixShape shape{operands.rows, operands.columns, aligned(operands.x)};
        with_column_width<S>(operands.columns, [&]<int kWidth>(Constant<kWidth>) {
            const SquareTerms<S, kWidth> terms{operands.x.as<const S>(),
                                               sums.as<const Computed<S>>(),
                                               operands.columns, shape.vectors};
            sum_columns<S, kWidth>(stream, workspace, squares, terms, shape);
        });
    });
}

void launch_batch_moments(cudaStream_t stream, const BatchMomentsOperands& operands,
                          double momentum, double epsilon) {
    with_wide_type(operands.mean, [&]<typename T>(T) {
        launch(stream, batch_moments<T>,
               static_cast<int>(divided_up(operands.columns, kTileThreads)), kTileThreads,
               operands, static_cast<T>(momentum), static_cast<T>(epsilon));
    });
}

void launch_batch_norm(cudaStream_t stream, Numbers y, const BatchOperands& operands,
                       Numbers weight, Numbers bias) {
    with_type(y, [&]<typename S>(S) {
        const bool full = operands.columns % kFullWidth<S> == 0 && aligned(y, operands.x);
        with_width<S>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(operands.rows, operands.columns / kWidth);
            launch(stream, batch_norm<S, kWidth>, tiles.blocks(), kTileThreads, y.as<S>(),
                   operands, weight.as<S>(), bias.as<S>(), tiles);
        });
    });
}

void launch_batch_norm_backward_sums(cudaStream_t stream, Numbers workspace, Numbers sums,
                                     Numbers dy, const BatchOperands& operands) {
    with_type(operands.x, [&]<typename S>(S) {
        const MatrixShape shape{operands.rows, operands.columns, aligned(dy, operands.x)};
        with_column_width<S>(operands.columns, [&]<int kWidth>(Constant<kWidth>) {
            const BatchGradientTerms<S, kWidth> terms{dy.as<const S>(), operands,
                                                      shape.vectors};
            sum_columns<S, kWidth>(stream, workspace, sums, terms, shape);
        });
    });
}

void launch_batch_norm_backward_input(cudaStream_t stream, Numbers dx, Numbers dy,
                                      const BatchOperands& operands, Numbers weight,
                                      Numbers sums, Numbers count) {
    with_type(dx, [&]<typename S>(S) {
        using T = Computed<S>;
        const bool full =
            operands.columns % kFullWidth<S> == 0 && aligned(dx, dy, operands.x);
        with_width<S>(full, [&]<int kWidth>(Constant<kWidth>) {
            const Tiles tiles(operands.rows, operands.columns / kWidth);
            launch(stream, batch_norm_backward<S, kWidth>, tiles.blocks(), kTileThreads,
                   dx.as<S>(), dy.as<S>(), operands, weight.as<S>(), sums.as<T>(),
                   count.as<T>(), tiles);
        });
    });
}

}  // namespace lockstep::gpu
