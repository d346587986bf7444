#include <cmath>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"

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

void Device::do_layer_norm(const Normalized& result, const Tensor& x,
                           const Tensor& weight, const Tensor& bias, double epsilon) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = x.shape().columns();
        const T* gain = weight.data<T>();
        const T* shift = bias.data<T>();
        for (std::int64_t i = 0; i < x.shape().rows(); ++i) {
            const Row<T> row = measured<T>(x.data<T>() + i * columns, columns, epsilon);
            result.mean.data<T>()[i] = row.mean;
            result.rstd.data<T>()[i] = row.rstd;
            map_lanes(
                columns, result.y.data<T>() + i * columns,
                [&](const Lane<T>& lane, const Lane<T>& w, const Lane<T>& b) -> Lane<T> {
                    return row.normalized(lane) * w + b;
                },
                row.x, gain, shift);
        }
    });
}

void Device::do_layer_norm_backward_input(const Tensor& dx, const Tensor& dy,
                                          const Tensor& x, const Tensor& weight,
                                          const Normalized& saved) {
    // With g = dy * weight and x^ = (x - mean) * rstd:
    // dx = rstd * (g - mean(g) - x^ * mean(g * x^)).
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = x.shape().columns();
        const auto n = static_cast<double>(columns);
        const T* gain = weight.data<T>();
        for (std::int64_t i = 0; i < x.shape().rows(); ++i) {
            const Row<T> row{x.data<T>() + i * columns, columns, saved.mean.data<T>()[i],
                             saved.rstd.data<T>()[i]};
            const T* gradient = dy.data<T>() + i * columns;
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
                columns, dx.data<T>() + i * columns,
                [&](const Lane<T>& d, const Lane<T>& w, const Lane<T>& lane) -> Lane<T> {
                    return row.rstd *
                           (d * w - along_ones - row.normalized(lane) * along_x);
                },
                gradient, gain, row.x);
        }
    });
}

void Device::do_layer_norm_backward_weight(const Tensor& d_weight, const Tensor& d_bias,
                                           const Tensor& dy, const Tensor& x,
                                           const Normalized& saved) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t rows = x.shape().rows();
        const std::int64_t columns = x.shape().columns();
        const T* values = x.data<T>();
        const T* gradient = dy.data<T>();
        const T* mean = saved.mean.data<T>();
        const T* rstd = saved.rstd.data<T>();
        add_column_sums(
            rows, columns, d_weight.data<T>(),
            [&](std::int64_t i, std::int64_t j, std::int64_t count) -> Lane<T> {
                const std::int64_t at = i * columns + j;
                return load(gradient + at, count) *
                       ((load(values + at, count) - mean[i]) * rstd[i]);
            });
        add_column_sums(rows, columns, d_bias.data<T>(),
                        [&](std::int64_t i, std::int64_t j, std::int64_t count) {
                            return load(gradient + i * columns + j, count);
                        });
    });
}

void Device::do_rms_norm(const Tensor& y, const Tensor& rstd, const Tensor& x,
                         const Tensor& weight, double epsilon) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = x.shape().columns();
        const T* gain = weight.data<T>();
        const auto square = [](const Lane<T>& lane) -> Lane<double> {
            return lane.template cast<double>().square();
        };
        for (std::int64_t i = 0; i < x.shape().rows(); ++i) {
            const T* row = x.data<T>() + i * columns;
            const double mean =
                sum_lanes(columns, square, row) / static_cast<double>(columns);
            const auto scale = static_cast<T>(1 / std::sqrt(mean + epsilon));
            rstd.data<T>()[i] = scale;
            map_lanes(
                columns, y.data<T>() + i * columns,
                [scale](const Lane<T>& lane, const Lane<T>& w) -> Lane<T> {
                    return lane * scale * w;
                },
                row, gain);
        }
    });
}

void Device::do_rms_norm_backward_input(const Tensor& dx, const Tensor& dy,
                                        const Tensor& x, const Tensor& weight,
                                        const Tensor& rstd) {
    // With g = dy * weight and x^ = x * rstd: dx = rstd * (g - x^ * mean(g * x^)).
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = x.shape().columns();
        const T* gain = weight.data<T>();
        for (std::int64_t i = 0; i < x.shape().rows(); ++i) {
            const T scale = rstd.data<T>()[i];
            const T* row = x.data<T>() + i * columns;
            const T* gradient = dy.data<T>() + i * columns;
            const auto along = [scale](const Lane<T>& d, const Lane<T>& w,
                                       const Lane<T>& lane) -> Lane<T> {
                return d * w * (lane * scale);
            };
            const auto along_x =
                static_cast<T>(sum_lanes(columns, along, gradient, gain, row) /
                               static_cast<double>(columns));
            map_lanes(
                columns, dx.data<T>() + i * columns,
                [&](const Lane<T>& d, const Lane<T>& w, const Lane<T>& lane) -> Lane<T> {
                    return scale * (d * w - (lane * scale) * along_x);
                },
                gradient, gain, row);
        }
    });
}

void Device::do_rms_norm_backward_weight(const Tensor& d_weight, const Tensor& dy,
                                         const Tensor& x, const Tensor& rstd) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = x.shape().columns();
        const T* values = x.data<T>();
        const T* gradient = dy.data<T>();
        const T* scale = rstd.data<T>();
        add_column_sums(
            x.shape().rows(), columns, d_weight.data<T>(),
            [&](std::int64_t i, std::int64_t j, std::int64_t count) -> Lane<T> {
                const std::int64_t at = i * columns + j;
                return load(gradient + at, count) * (load(values + at, count) * scale[i]);
            });
    });
}

}  // namespace lockstep::sim
