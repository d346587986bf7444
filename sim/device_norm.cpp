#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

namespace {

template <typename T>
struct Row {
    const T* x;
    std::int64_t columns;
    T mean;
    T rstd;

    Lane<T> normalized(const Lane<T>& lane) const { return (lane - mean) * rstd; }
};

template <typename T>
Row<T> measured(const T* x, std::int64_t columns, double epsilon) {
    const auto n = static_cast<double>(columns);
    const auto itself = [](const Lane<T>& lane) -> const Lane<T>& { return lane; };
    const double mean = sum_lanes(columns, itself, x) / n;
    const auto square = [mean](const Lane<T>& lane) -> Lane<double> {
        return (lane.template cast<double>() - mean).square();
    };
    const double variance = sum_lanes(columns, square, x) / n;
    return {x, columns, static_cast<T>(mean),
            static_cast<T>(1 / std::sqrt(variance + epsilon))};
}

}  // namespace

template <>
void CpuDevice::compute(const ops::LayerNorm& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T* gain = op.weight.data<T>();
        const T* shift = op.bias.data<T>();
        each_row(op.x.shape().matrix_rows(), columns, [&](std::int64_t i) {
            const Row<T> row =
                measured<T>(op.x.data<T>() + i * columns, columns, op.epsilon);
            op.result.mean.data<T>()[i] = row.mean;
            op.result.rstd.data<T>()[i] = row.rstd;
            map_lanes(
                columns, op.result.y.data<T>() + i * columns,
                [&](const Lane<T>& lane, const Lane<T>& w, const Lane<T>& b) -> Lane<T> {
                    return row.normalized(lane) * w + b;
                },
                row.x, gain, shift);
        });
    });
}

template <>
void CpuDevice::compute(const ops::LayerNormBackwardInput& op) {
    // With g = dy * weight and x^ = (x - mean) * rstd:
    // dx = rstd * (g - mean(g) - x^ * mean(g * x^)).
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const auto n = static_cast<double>(columns);
        const T* gain = op.weight.data<T>();
        each_row(op.x.shape().matrix_rows(), columns, [&](std::int64_t i) {
            const Row<T> row{op.x.data<T>() + i * columns, columns, op.mean.data<T>()[i],
                             op.rstd.data<T>()[i]};
            const T* gradient = op.dy.data<T>() + i * columns;
            const auto g = [](const Lane<T>& d, const Lane<T>& w) -> Lane<T> {
                return d * w;
            };
            const auto g_times_normalized = [&](const Lane<T>& d, const Lane<T>& w,
                                                const Lane<T>& lane) -> Lane<T> {
                return d * w * row.normalized(lane);
            };
            const auto along_ones =
                static_cast<T>(sum_lanes(columns, g, gradient, gain) / n);
            const auto along_x = static_cast<T>(
                sum_lanes(columns, g_times_normalized, gradient, gain, row.x) / n);
            map_lanes(
                columns, op.dx.data<T>() + i * columns,
                [&](const Lane<T>& d, const Lane<T>& w, const Lane<T>& lane) -> Lane<T> {
                    return row.rstd *
                           (d * w - along_ones - row.normalized(lane) * along_x);
                },
                gradient, gain, row.x);
        });
    });
}

template <>
void CpuDevice::compute(const ops::LayerNormBackwardWeight& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t rows = op.x.shape().matrix_rows();
        const std::int64_t columns = op.x.shape().columns();
        const T* values = op.x.data<T>();
        const T* gradient = op.dy.data<T>();
        const T* mean = op.mean.data<T>();
        const T* rstd = op.rstd.data<T>();
        add_column_sums(
            rows, columns, op.d_weight.data<T>(),
            [&](std::int64_t i, std::int64_t j, std::int64_t count) -> Lane<T> {
                const std::int64_t at = i * columns + j;
                return load(gradient + at, count) *
                       ((load(values + at, count) - mean[i]) * rstd[i]);
            });
        add_column_sums(rows, columns, op.d_bias.data<T>(),
                        [&](std::int64_t i, std::int64_t j, std::int64_t count) {
                            return load(gradient + i * columns + j, count);
                        });
    });
}

template <>
void CpuDevice::compute(const ops::RmsNorm& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T* gain = op.weight.data<T>();
        const auto square = [](const Lane<T>& lane) -> Lane<double> {
            return lane.template cast<double>().square();
        };
        each_row(op.x.shape().matrix_rows(), columns, [&](std::int64_t i) {
            const T* row = op.x.data<T>() + i * columns;
            const double mean =
                sum_lanes(columns, square, row) / static_cast<double>(columns);
            const auto scale = static_cast<T>(1 / std::sqrt(mean + op.epsilon));
            op.rstd.data<T>()[i] = scale;
            map_lanes(
                columns, op.y.data<T>() + i * columns,
                [scale](const Lane<T>& lane, const Lane<T>& w) -> Lane<T> {
                    return lane * scale * w;
                },
                row, gain);
        });
    });
}

template <>
void CpuDevice::compute(const ops::RmsNormBackwardInput& op) {
    // With g = dy * weight and x^ = x * rstd:
    // dx = rstd * (g - x^ * mean(g * x^)).
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T* gain = op.weight.data<T>();
        each_row(op.x.shape().matrix_rows(), columns, [&](std::int64_t i) {
            const T scale = op.rstd.data<T>()[i];
            const T* row = op.x.data<T>() + i * columns;
            const T* gradient = op.dy.data<T>() + i * columns;
            const auto along = [scale](const Lane<T>& d, const Lane<T>& w,
                                       const Lane<T>& lane) -> Lane<T> {
                return d * w * (lane * scale);
            };
            const auto along_x =
                static_cast<T>(sum_lanes(columns, along, gradient, gain, row) /
                               static_cast<double>(columns));
            map_lanes(
                columns, op.dx.data<T>() + i * columns,
                [&](const Lane<T>& d, const Lane<T>& w, const Lane<T>& lane) -> Lane<T> {
                    return scale * (d * w - (lane * scale) * along_x);
                },
                gradient, gain, row);
        });
    });
}

template <>
void CpuDevice::compute(const ops::RmsNormBackwardWeight& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T* values = op.x.data<T>();
        const T* gradient = op.dy.data<T>();
        const T* scale = op.rstd.data<T>();
        add_column_sums(
            op.x.shape().matrix_rows(), columns, op.d_weight.data<T>(),
            [&](std::int64_t i, std::int64_t j, std::int64_t count) -> Lane<T> {
                const std::int64_t at = i * columns + j;
                return load(gradient + at, count) * (load(values + at, count) * scale[i]);
            });
    });
}

template <>
void CpuDevice::compute(const ops::BatchSums& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t rows = op.x.shape().matrix_rows();
        const std::int64_t columns = op.x.shape().columns();
        const T* values = op.x.data<T>();
        T* sums = op.sums.data<T>();
        std::fill_n(sums, columns, T{0});
        add_column_sums(rows, columns, sums,
                        [&](std::int64_t i, std::int64_t j, std::int64_t count) {
                            return load(values + i * columns + j, count);
                        });
        sums[columns] = static_cast<T>(rows);
    });
}

template <>
void CpuDevice::compute(const ops::BatchSquares& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T* values = op.x.data<T>();
        const T* sums = op.sums.data<T>();
        std::vector<double> mean(static_cast<std::size_t>(columns));
        std::transform(sums, sums + columns, mean.begin(),
                       [&](T sum) { return double{sum} / double{sums[columns]}; });
        T* squares = op.squares.data<T>();
        std::fill_n(squares, columns, T{0});
        add_column_sums(
            op.x.shape().matrix_rows(), columns, squares,
            [&](std::int64_t i, std::int64_t j, std::int64_t count) -> Lane<double> {
                const Lane<T> x = load(values + i * columns + j, count);
                return (x.template cast<double>() - load(mean.data() + j, count))
                    .square();
            });
    });
}

template <>
void CpuDevice::compute(const ops::BatchMoments& op) {
    with_real(op.squares.dtype(), [&]<typename T>(T) {
        const T* sums = op.sums.data<T>();
        const std::int64_t columns = op.squares.elements();
        const double rows = sums[columns];
        const auto go_on = [&](T& running, double now) {
            running = static_cast<T>(formulas::running_statistic<double>(
                running, now, op.running.momentum, rows));
        };
        for (std::int64_t j = 0; j < columns; ++j) {
            const formulas::Moments<double> moments(sums[j], op.squares.data<T>()[j],
                                                    rows, op.epsilon);
            op.mean.data<T>()[j] = static_cast<T>(moments.mean);
            op.rstd.data<T>()[j] = static_cast<T>(moments.rstd);
            if (!op.running.mean) continue;
            go_on(op.running.mean.data<T>()[j], moments.mean);
            go_on(op.running.variance.data<T>()[j], moments.unbiased);
        }
    });
}

template <>
void CpuDevice::compute(const ops::BatchNorm& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T *mean = op.mean.data<T>(), *rstd = op.rstd.data<T>();
        const T *weight = op.weight.data<T>(), *bias = op.bias.data<T>();
        for (std::int64_t i = 0; i < op.x.shape().matrix_rows(); ++i)
            map_lanes(
                columns, op.y.data<T>() + i * columns,
                [](const Lane<T>& x, const Lane<T>& m, const Lane<T>& r, const Lane<T>& w,
                   const Lane<T>& b) -> Lane<T> { return (x - m) * r * w + b; },
                static_cast<const T*>(op.x.data<T>()) + i * columns, mean, rstd, weight,
                bias);
    });
}

template <>
void CpuDevice::compute(const ops::BatchNormBackwardSums& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t rows = op.x.shape().matrix_rows();
        const std::int64_t columns = op.x.shape().columns();
        const T *values = op.x.data<T>(), *gradient = op.dy.data<T>();
        const T *mean = op.mean.data<T>(), *rstd = op.rstd.data<T>();
        T* sums = op.sums.data<T>();
        std::fill_n(sums, 2 * columns, T{0});
        add_column_sums(rows, columns, sums,
                        [&](std::int64_t i, std::int64_t j, std::int64_t count) {
                            return load(gradient + i * columns + j, count);
                        });
        add_column_sums(
            rows, columns, sums + columns,
            [&](std::int64_t i, std::int64_t j, std::int64_t count) -> Lane<T> {
                const std::int64_t at = i * columns + j;
                return load(gradient + at, count) *
                       ((load(values + at, count) - load(mean + j, count)) *
                        load(rstd + j, count));
            });
    });
}

template <>
void CpuDevice::compute(const ops::BatchNormBackwardInput& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const T *values = op.x.data<T>(), *gradient = op.dy.data<T>();
        const T *mean = op.mean.data<T>(), *rstd = op.rstd.data<T>();
        const T *weight = op.weight.data<T>(), *sums = op.sums.data<T>();
        const T n = *op.count.data<T>();
        for (std::int64_t i = 0; i < op.x.shape().matrix_rows(); ++i)
            map_lanes(
                columns, op.dx.data<T>() + i * columns,
                [n](const Lane<T>& dy, const Lane<T>& x, const Lane<T>& w,
                    const Lane<T>& m, const Lane<T>& r, const Lane<T>& along_ones,
                    const Lane<T>& along_x) -> Lane<T> {
                    return r * w * (dy - along_ones / n - (x - m) * r * (along_x / n));
                },
                gradient + i * columns, values + i * columns, weight, mean, rstd, sums,
                sums + columns);
    });
}

}  // namespace lockstep::sim
