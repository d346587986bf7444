#include <algorithm>
#include <cmath>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

namespace {

/// Columns of a shard's logits that are no padding; they come first.
std::int64_t real_columns(const Tensor& logits, const VocabularyShard& shard) {
    return std::clamp<std::int64_t>(shard.whole - shard.first, 0,
                                    logits.shape().columns());
}

}  // namespace

void Device::do_row_maximum(const Tensor& maximum, const Tensor& logits,
                            const VocabularyShard& shard) {
    const std::int64_t columns = logits.shape().columns();
    const std::int64_t real = real_columns(logits, shard);
    with_real(logits.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < maximum.elements(); ++i)
            maximum.data<T>()[i] = largest(logits.data<T>() + i * columns, real);
    });
}

void Device::do_cross_entropy_parts(const Tensor& parts, const Tensor& logits,
                                    const Tensor& targets, const Tensor& maximum,
                                    const VocabularyShard& shard) {
    check_indices(targets, shard.whole);
    const std::int64_t rows = targets.elements();
    const std::int64_t columns = logits.shape().columns();
    const std::int64_t real = real_columns(logits, shard);
    const auto* target = targets.data<std::int32_t>();
    with_real(logits.dtype(), [&]<typename T>(T) {
        T* sums = parts.data<T>();
        for (std::int64_t i = 0; i < rows; ++i) {
            const T* row = logits.data<T>() + i * columns;
            const T most = maximum.data<T>()[i];
            const auto exponential = [most](const Lane<T>& a) {
                return exp_lane<T>(a - most);
            };
            sums[i] = static_cast<T>(sum_lanes(real, exponential, row));
            const std::int64_t own = target[i] - shard.first;
            sums[rows + i] = own >= 0 && own < columns ? row[own] : T{0};
        }
    });
}

void Device::do_cross_entropy_of_parts(const Tensor& losses, const Tensor& maximum,
                                       const Tensor& parts) {
    const std::int64_t rows = losses.elements();
    with_real(losses.dtype(), [&]<typename T>(T) {
        const T* sums = parts.data<T>();
        for (std::int64_t i = 0; i < rows; ++i)
            losses.data<T>()[i] =
                static_cast<T>(std::log(static_cast<double>(sums[i])) +
                               (static_cast<double>(maximum.data<T>()[i]) -
                                static_cast<double>(sums[rows + i])));
    });
}

void Device::do_cross_entropy_backward_of_parts(const Tensor& d_logits,
                                                const Tensor& logits,
                                                const Tensor& targets,
                                                const Tensor& maximum,
                                                const Tensor& parts, double factor,
                                                const VocabularyShard& shard) {
    check_indices(targets, shard.whole);
    const std::int64_t columns = logits.shape().columns();
    const std::int64_t real = real_columns(logits, shard);
    const auto* target = targets.data<std::int32_t>();
    with_real(logits.dtype(), [&]<typename T>(T) {
        const auto by = static_cast<T>(factor);
        for (std::int64_t i = 0; i < targets.elements(); ++i) {
            const T* row = logits.data<T>() + i * columns;
            T* out = d_logits.data<T>() + i * columns;
            const T most = maximum.data<T>()[i];
            const T inverse = 1 / parts.data<T>()[i];
            map_lanes(
                real, out,
                [&](const Lane<T>& a) -> Lane<T> {
                    return inverse * exp_lane<T>(a - most);
                },
                row);
            const std::int64_t own = target[i] - shard.first;
            if (own >= 0 && own < real) out[own] -= 1;
            map_lanes(
                real, out, [by](const Lane<T>& a) -> Lane<T> { return by * a; },
                static_cast<const T*>(out));
            std::fill(out + real, out + columns, T{0});
        }
    });
}

}  // namespace lockstep::sim
