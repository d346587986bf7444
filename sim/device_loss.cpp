#include <algorithm>
#include <cmath>
#include <vector>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

namespace {

template <typename T>
Lane<T> itself(const Lane<T>& lane) {
    return lane;
}

/// The maximum is taken off, so that no exponential overflows. A NaN makes all of the row
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

/// That of the first `seen` columns; 0 for the others.
template <typename T>
void softmax_of_first(T* out, const T* row, std::int64_t columns, std::int64_t seen) {
    if (seen > 0) softmax_of<T>(out, row, seen);
    std::fill(out + seen, out + columns, T{0});
}

/// That of the columns whose keys' tokens are not after `last`; 0 for the others. `held`
/// has room for a row.
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

/// Of rows (…, queries, keys).
template <typename T>
void causal_softmax(T* out, const T* row, const Shape& shape,
                    const SoftmaxOptions& options) {
    const std::int64_t columns = shape.columns();
    const std::int64_t queries = shape[shape.dimensions() - 2];
    const bool plain = options.keys.order == TokenOrder::contiguous;
    std::vector<std::int64_t> tokens(static_cast<std::size_t>(plain ? 0 : columns));
    for (std::size_t key = 0; key < tokens.size(); ++key)
        tokens[key] = options.keys[static_cast<std::int64_t>(key)];
    std::vector<T> held(tokens.size());
    for (std::int64_t i = 0; i < shape.rows(); ++i) {
        const std::int64_t last = options.queries[i % queries];
        if (plain)
            softmax_of_first(
                out, row, columns,
                std::clamp<std::int64_t>(last - options.keys.first + 1, 0, columns));
        else
            softmax_of_seen(out, row, tokens, last, held);
        out += columns;
        row += columns;
    }
}

/// -log softmax(row)[target].
template <typename T>
double cross_entropy_of(const T* row, std::int64_t columns, std::int64_t target) {
    const T most = largest(row, columns);
    const auto exponential = [most](const Lane<T>& a) { return exp_lane<T>(a - most); };
    return std::log(sum_lanes(columns, exponential, row)) +
           (static_cast<double>(most) - static_cast<double>(row[target]));
}

}  // namespace

void Device::do_softmax(const Tensor& y, const Tensor& x, const SoftmaxOptions& options) {
    with_real(x.dtype(), [&]<typename T>(T) {
        const Shape& shape = x.shape();
        if (options.causal)
            return causal_softmax(y.data<T>(), x.data<const T>(), shape, options);
        for (std::int64_t at = 0; at < x.elements(); at += shape.columns())
            softmax_of<T>(y.data<T>() + at, x.data<T>() + at, shape.columns());
    });
}

void Device::do_softmax_backward(const Tensor& dx, const Tensor& y, const Tensor& dy) {
    // dx = y * (dy - sum(y * dy)).
    with_real(y.dtype(), [&]<typename T>(T) {
        const std::int64_t columns = y.shape().columns();
        const auto product = [](const Lane<T>& a, const Lane<T>& b) -> Lane<T> {
            return a * b;
        };
        for (std::int64_t at = 0; at < y.elements(); at += columns) {
            const T* row = y.data<T>() + at;
            const T* gradient = dy.data<T>() + at;
            const auto along = static_cast<T>(sum_lanes(columns, product, row, gradient));
            const auto across = [along](const Lane<T>& a, const Lane<T>& b) -> Lane<T> {
                return a * (b - along);
            };
            map_lanes(columns, dx.data<T>() + at, across, row, gradient);
        }
    });
}

void Device::do_cross_entropy(const Tensor& losses, const Tensor& logits,
                              const Tensor& targets) {
    const std::int64_t columns = logits.shape().columns();
    check_indices(targets, columns);
    const auto* target = targets.data<std::int32_t>();
    with_real(logits.dtype(), [&]<typename T>(T) {
        for (std::int64_t i = 0; i < losses.elements(); ++i)
            losses.data<T>()[i] = static_cast<T>(
                cross_entropy_of<T>(logits.data<T>() + i * columns, columns, target[i]));
    });
}

void Device::do_cross_entropy_backward(const Tensor& d_logits, const Tensor& logits,
                                       const Tensor& targets, double factor) {
    const std::int64_t columns = logits.shape().columns();
    check_indices(targets, columns);
    const auto* target = targets.data<std::int32_t>();
    with_real(logits.dtype(), [&]<typename T>(T) {
        const auto by = static_cast<T>(factor);
        for (std::int64_t i = 0; i < targets.elements(); ++i) {
            T* row = d_logits.data<T>() + i * columns;
            softmax_of<T>(row, logits.data<T>() + i * columns, columns);
            row[target[i]] -= 1;
            map_lanes(
                columns, row, [by](const Lane<T>& a) -> Lane<T> { return by * a; },
                static_cast<const T*>(row));
        }
    });
}

void Device::do_squared_error(const Tensor& loss, const Tensor& prediction,
                              const Tensor& target) {
    with_real(prediction.dtype(), [&]<typename T>(T) {
        const T* got = prediction.data<T>();
        const T* wanted = target.data<T>();
        const auto square = [](const Lane<T>& a, const Lane<T>& b) -> Lane<double> {
            return (a - b).template cast<double>().square();
        };
        *loss.data<T>() =
            static_cast<T>(sum_lanes(prediction.elements(), square, got, wanted));
    });
}

void Device::do_squared_error_backward(const Tensor& d_prediction,
                                       const Tensor& prediction, const Tensor& target,
                                       double factor) {
    with_real(prediction.dtype(), [&]<typename T>(T) {
        const T* got = prediction.data<T>();
        const T* wanted = target.data<T>();
        const auto by = static_cast<T>(2 * factor);
        map_lanes(
            prediction.elements(), d_prediction.data<T>(),
            [by](const Lane<T>& a, const Lane<T>& b) -> Lane<T> { return by * (a - b); },
            got, wanted);
    });
}

}  // namespace lockstep::sim
