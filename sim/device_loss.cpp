#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/device.hpp"
#include "sim/lane_functions.hpp"
#include "src/device/dispatch.hpp"
#include "src/device/formulas.hpp"

namespace lockstep::sim {

namespace {

template <typename T>
Lane<T> itself(const Lane<T>& lane) {
    return lane;
}

/// Subtracts the maximum, so that no exponential overflows. A NaN makes the whole row
/// NaN.
template <typename T>
void softmax_of(T* out, const T* row, std::int64_t columns) {
    const T most = largest(row, columns);
    map_lanes(
        columns, out, [most](const Lane<T>& a) { return exp_lane<T>(a - most); }, row);
    const T* exponentials = out;
    const auto inverse = static_cast<T>(1 / sum_lanes(columns, itself<T>, exponentials));
    map_lanes(
        columns, out, [inverse](const Lane<T>& a) -> Lane<T> { return inverse * a; },
        exponentials);
}

/// Computes the softmax of the first `seen` columns; the others become 0.
template <typename T>
void softmax_of_first(T* out, const T* row, std::int64_t columns, std::int64_t seen) {
    if (seen > 0) softmax_of<T>(out, row, seen);
    std::fill(out + seen, out + columns, T{0});
}

/// Computes the softmax of the columns whose keys' tokens are not after `last`; the
/// others become 0. `held` has room for a row.
template <typename T>
void softmax_of_seen(T* out, const T* row, const std::vector<std::int64_t>& tokens,
                     std::int64_t last, std::vector<T>& held) {
    std::int64_t seen = 0;
    for (std::size_t key = 0; key < tokens.size(); ++key)
        if (tokens[key] <= last) held[seen++] = row[key];
    if (seen > 0) softmax_of<T>(held.data(), held.data(), seen);
    const T* next = held.data();
    for (std::size_t key = 0; key < tokens.size(); ++key)
        out[key] = tokens[key] <= last ? *next++ : T{0};
}

/// Computes rows (…, queries, keys).
template <typename T>
void causal_softmax(T* out, const T* row, const Shape& shape,
                    const SoftmaxOptions& options) {
    const std::int64_t columns = shape.columns();
    const std::int64_t queries = shape[shape.dimensions() - 2];
    const bool plain = options.keys.order == TokenOrder::contiguous;
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(plain ? 0 : columns));
    for (std::size_t key = 0; key < tokens.size(); ++key)
        tokens[key] = options.keys[static_cast<std::int64_t>(key)];
    in_parts(shape.matrix_rows(), long_part_of(columns),
             [&](std::int64_t first, std::int64_t count) {
                 std::vector<T> held(tokens.size());
                 for (std::int64_t i = first; i < first + count; ++i) {
                     const std::int64_t last = options.queries[i % queries];
                     const std::int64_t at = i * columns;
                     if (plain)
                         softmax_of_first(out + at, row + at, columns,
                                          std::clamp<std::int64_t>(
                                              last - options.keys.first + 1, 0, columns));
                     else
                         softmax_of_seen(out + at, row + at, tokens, last, held);
                 }
             });
}

/// Returns the logarithm of the sum of exp(x) of a row, minus `off`.
template <typename T>
double log_sum_exp_of(const T* row, std::int64_t columns, double off) {
    const T most = largest(row, columns);
    const auto exponential = [most](const Lane<T>& a) { return exp_lane<T>(a - most); };
    return std::log(sum_lanes(columns, exponential, row)) +
           (static_cast<double>(most) - off);
}

/// Returns -log softmax(row)[target].
template <typename T>
double cross_entropy_of(const T* row, std::int64_t columns, std::int64_t target) {
    return log_sum_exp_of(row, columns, static_cast<double>(row[target]));
}

}  // namespace

template <>
void CpuDevice::compute(const ops::Softmax& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const Shape& shape = op.x.shape();
        if (op.options.causal)
            return causal_softmax(op.y.data<T>(), op.x.data<const T>(), shape,
                                  op.options);
        const std::int64_t columns = shape.columns();
        each_row(shape.matrix_rows(), columns, [&](std::int64_t i) {
            softmax_of<T>(op.y.data<T>() + i * columns, op.x.data<T>() + i * columns,
                          columns);
        });
    });
}

template <>
void CpuDevice::compute(const ops::SoftmaxBackward& op) {
    // dx = y * (dy - sum(y * dy)).
    with_real(op.y.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.y.shape().columns();
        const auto product = [](const Lane<T>& a, const Lane<T>& b) -> Lane<T> {
            return a * b;
        };
        each_row(op.y.shape().matrix_rows(), columns, [&](std::int64_t i) {
            const T* row = op.y.data<T>() + i * columns;
            const T* gradient = op.dy.data<T>() + i * columns;
            const auto along = static_cast<T>(sum_lanes(columns, product, row, gradient));
            const auto across = [along](const Lane<T>& a, const Lane<T>& b) -> Lane<T> {
                return a * (b - along);
            };
            map_lanes(columns, op.dx.data<T>() + i * columns, across, row, gradient);
        });
    });
}

template <>
void CpuDevice::compute(const ops::LogSumExp& op) {
    const std::int64_t columns = op.x.shape().columns();
    with_real(op.x.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < op.y.elements(); ++i)
            op.y.data<T>()[i] = static_cast<T>(
                log_sum_exp_of<T>(op.x.data<T>() + i * columns, columns, 0));
    });
}

template <>
void CpuDevice::compute(const ops::NormalizeRows& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        each_row(op.x.shape().matrix_rows(), columns, [&](std::int64_t i) {
            const T* row = op.x.data<T>() + i * columns;
            const auto inverse = static_cast<T>(
                1 / (sum_lanes(columns, itself<T>, row) + formulas::kLeastSum<double>));
            map_lanes(
                columns, op.y.data<T>() + i * columns,
                [inverse](const Lane<T>& a) -> Lane<T> { return inverse * a; }, row);
        });
    });
}

template <>
void CpuDevice::compute(const ops::NormalizeRowsBackward& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = op.x.shape().columns();
        const auto product = [](const Lane<T>& a, const Lane<T>& b) -> Lane<T> {
            return a * b;
        };
        for (std::int64_t at = 0; at < op.x.elements(); at += columns) {
            const T* row = op.x.data<T>() + at;
            const T* gradient = op.dy.data<T>() + at;
            const double inverse =
                1 / (sum_lanes(columns, itself<T>, row) + formulas::kLeastSum<double>);
            const auto factor = static_cast<T>(inverse);
            const auto along =
                static_cast<T>(inverse * sum_lanes(columns, product, row, gradient));
            map_lanes(
                columns, op.dx.data<T>() + at,
                [&](const Lane<T>& a) -> Lane<T> { return factor * (a - along); },
                gradient);
        }
    });
}

template <>
void CpuDevice::compute(const ops::CrossEntropy& op) {
    const std::int64_t columns = op.logits.shape().columns();
    const auto* target = op.targets.data<std::int32_t>();
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < op.losses.elements(); ++i)
            op.losses.data<T>()[i] = static_cast<T>(cross_entropy_of<T>(
                op.logits.data<T>() + i * columns, columns, target[i]));
    });
}

template <>
void CpuDevice::compute(const ops::CrossEntropyBackward& op) {
    const std::int64_t columns = op.logits.shape().columns();
    const auto* target = op.targets.data<std::int32_t>();
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        const auto factor = static_cast<T>(op.factor);
        each_row(op.targets.elements(), columns, [&](std::int64_t i) {
            T* row = op.d_logits.data<T>() + i * columns;
            softmax_of<T>(row, op.logits.data<T>() + i * columns, columns);
            row[target[i]] -= 1;
            map_lanes(
                columns, row,
                [factor](const Lane<T>& a) -> Lane<T> { return factor * a; },
                static_cast<const T*>(row));
        });
    });
}

template <>
void CpuDevice::compute(const ops::SquaredError& op) {
    with_real(op.prediction.dtype(), [&]<typename T>(T) {
        const T* got = op.prediction.data<T>();
        const T* wanted = op.target.data<T>();
        const auto square = [](const Lane<T>& a, const Lane<T>& b) -> Lane<double> {
            return (a - b).template cast<double>().square();
        };
        *op.loss.data<T>() =
            static_cast<T>(sum_lanes(op.prediction.elements(), square, got, wanted));
    });
}

template <>
void CpuDevice::compute(const ops::SquaredErrorBackward& op) {
    with_real(op.prediction.dtype(), [&]<typename T>(T) {
        const T* got = op.prediction.data<T>();
        const T* wanted = op.target.data<T>();
        const auto factor = static_cast<T>(2 * op.factor);
        map_lanes(
            op.prediction.elements(), op.d_prediction.data<T>(),
            [factor](const Lane<T>& a, const Lane<T>& b) -> Lane<T> {
                return factor * (a - b);
            },
            got, wanted);
    });
}

namespace {

/// Returns how many columns of a shard's logits come before the padding.
std::int64_t real_columns(const Tensor& logits, const VocabularyShard& shard) {
    return std::clamp<std::int64_t>(shard.whole - shard.first, 0,
                                    logits.shape().columns());
}

}  // namespace

template <>
void CpuDevice::compute(const ops::RowMaximum& op) {
    const std::int64_t columns = op.logits.shape().columns();
    const std::int64_t real = real_columns(op.logits, op.shard);
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < op.maximum.elements(); ++i)
            op.maximum.data<T>()[i] = largest(op.logits.data<T>() + i * columns, real);
    });
}

template <>
void CpuDevice::compute(const ops::CrossEntropyParts& op) {
    const std::int64_t rows = op.targets.elements();
    const std::int64_t columns = op.logits.shape().columns();
    const std::int64_t real = real_columns(op.logits, op.shard);
    const auto* target = op.targets.data<std::int32_t>();
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        T* sums = op.parts.data<T>();
        for (std::int64_t i = 0; i < rows; ++i) {
            const T* row = op.logits.data<T>() + i * columns;
            const T most = op.maximum.data<T>()[i];
            const auto exponential = [most](const Lane<T>& a) {
                return exp_lane<T>(a - most);
            };
            sums[i] = static_cast<T>(sum_lanes(real, exponential, row));
            const std::int64_t own = target[i] - op.shard.first;
            sums[rows + i] = own >= 0 && own < columns ? row[own] : T{0};
        }
    });
}

template <>
void CpuDevice::compute(const ops::CrossEntropyOfParts& op) {
    const std::int64_t rows = op.losses.elements();
    with_real(op.losses.dtype(), [&]<typename T>(T) {
        const T* sums = op.parts.data<T>();
        for (std::int64_t i = 0; i < rows; ++i)
            op.losses.data<T>()[i] =
                static_cast<T>(std::log(static_cast<double>(sums[i])) +
                               (static_cast<double>(op.maximum.data<T>()[i]) -
                                static_cast<double>(sums[rows + i])));
    });
}

template <>
void CpuDevice::compute(const ops::CrossEntropyBackwardOfParts& op) {
    const std::int64_t columns = op.logits.shape().columns();
    const std::int64_t real = real_columns(op.logits, op.shard);
    const auto* target = op.targets.data<std::int32_t>();
    with_real(op.logits.dtype(), [&]<typename T>(T) {
        const auto factor = static_cast<T>(op.factor);
        each_row(op.targets.elements(), columns, [&](std::int64_t i) {
            const T* row = op.logits.data<T>() + i * columns;
            T* out = op.d_logits.data<T>() + i * columns;
            const T most = op.maximum.data<T>()[i];
            const T inverse = 1 / op.parts.data<T>()[i];
            map_lanes(
                real, out,
                [&](const Lane<T>& a) -> Lane<T> {
                    return inverse * exp_lane<T>(a - most);
                },
                row);
            const std::int64_t own = target[i] - op.shard.first;
            if (own >= 0 && own < real) out[own] -= 1;
            map_lanes(
                real, out, [factor](const Lane<T>& a) -> Lane<T> { return factor * a; },
                static_cast<const T*>(out));
            std::fill(out + real, out + columns, T{0});
        });
    });
}

}  // namespace lockstep::sim
