#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "sim/eigen.hpp"
#include "sim/in_parts.hpp"
#include "src/core/dtype.hpp"
#include "src/core/tensor.hpp"

namespace lockstep::sim {

/// Elements that are computed together, in vector registers. Every element of a tensor is
/// computed as part of a whole lane, even the last few, because Eigen's exp of a vector
/// and of one number differ in the last bit.
template <typename T>
using Lane = Eigen::Array<T, 16, 1>;
inline constexpr std::int64_t kLane = 16;

/// Returns the first `count` elements at `data`, and `fill` behind them.
template <typename T>
[[gnu::noinline]] Lane<T> load_some(const T* data, std::int64_t count, T fill) {
    Lane<T> lane = Lane<T>::Constant(fill);
    std::copy_n(data, count, lane.data());
    return lane;
}

/// Returns the lane at `data`. Behind its first `count` elements it has `fill`.
template <typename T>
[[gnu::always_inline]] inline Lane<T> load(const T* data, std::int64_t count,
                                           T fill = 0) {
    if (count == kLane) return Eigen::Map<const Lane<T>>(data);
    return load_some(data, count, fill);
}

/// Stores the first `count` values of a lane.
template <typename T>
[[gnu::always_inline]] inline void store(T* data, const Lane<T>& lane,
                                         std::int64_t count) {
    if (count == kLane)
        Eigen::Map<Lane<T>>{data} = lane;
    else
        std::copy_n(lane.data(), count, data);
}

/// Computes map_lanes on this thread.
template <typename T, typename F, typename... In>
[[gnu::flatten]] void map_lanes_here(std::int64_t n, T* out, const F& f,
                                     const In*... in) {
    for (std::int64_t i = 0; i < n; i += kLane) {
        const std::int64_t count = std::min(kLane, n - i);
        store<T>(out + i, f(load(in + i, count)...), count);
    }
}

/// out[i] = f(in[i]…) for i < n. `f` gets lanes and returns a lane. `out` may be an `in`.
template <typename T, typename F, typename... In>
void map_lanes(std::int64_t n, T* out, const F& f, const In*... in) {
    if (n < 2 * kLongPart) return map_lanes_here(n, out, f, in...);
    in_parts(n, kLongPart, [&](std::int64_t first, std::int64_t count) {
        map_lanes_here(count, out + first, f, (in + first)...);
    });
}

/// Returns the sum over i < n of f(in[i]…), in f64. `f` gets lanes and returns a lane.
template <typename F, typename... In>
[[gnu::flatten]] double sum_lanes(std::int64_t n, F&& f, const In*... in) {
    Lane<double> sum = Lane<double>::Zero();
    for (std::int64_t i = 0; i < n; i += kLane) {
        const std::int64_t count = std::min(kLane, n - i);
        Lane<double> terms = f(load(in + i, count)...).template cast<double>();
        std::fill(terms.data() + count, terms.data() + kLane, 0.0);
        sum += terms;
    }
    return sum.sum();
}

/// Computes add_column_sums of columns [first, end) on this thread.
template <typename T, typename F>
[[gnu::flatten]] void add_column_sums_here(std::int64_t rows, std::int64_t first,
                                           std::int64_t end, T* out, const F& f) {
    for (std::int64_t j = first; j < end; j += kLane) {
        const std::int64_t count = std::min(kLane, end - j);
        Lane<double> sum = load(out + j, count).template cast<double>();
        for (std::int64_t i = 0; i < rows; ++i)
            sum += f(i, j, count).template cast<double>();
        store<T>(out + j, sum.template cast<T>(), count);
    }
}

/// out[j] += the sum over rows i of f(i, j, count), in f64. `f` returns a lane with the
/// row's elements j, j + 1, …; only the first `count` are used.
template <typename T, typename F>
void add_column_sums(std::int64_t rows, std::int64_t columns, T* out, const F& f) {
    in_parts(columns, long_part_of(rows * kLane) * kLane,
             [&](std::int64_t first, std::int64_t count) {
                 add_column_sums_here(rows, first, first + count, out, f);
             });
}

/// Returns the largest of `n` values; -infinity if there are none. NaNs are ignored.
template <typename T>
T largest(const T* values, std::int64_t n) {
    constexpr T kLeast = -std::numeric_limits<T>::infinity();
    Lane<T> most = Lane<T>::Constant(kLeast);
    for (std::int64_t i = 0; i < n; i += kLane)
        most = most.max(load(values + i, std::min(kLane, n - i), kLeast));
    return most.maxCoeff();
}

}  // namespace lockstep::sim
