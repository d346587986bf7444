#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <type_traits>

#include "sim/device.hpp"
#include "sim/lanes.hpp"
#include "src/device/dispatch.hpp"

namespace lockstep::sim {

namespace {

/// The type in which T is added and multiplied: integers wrap around, as on GPUs.
template <typename T>
using Wrapping = std::conditional_t<std::is_same_v<T, std::int32_t>, std::uint32_t, T>;

/// destination[i] = f(destination[i], source[i]), in T.
template <typename T, typename F>
void update(const Tensor& destination, const Tensor& source, F&& f) {
    T* out = destination.data<T>();
    map_lanes(destination.elements(), out, f, static_cast<const T*>(out),
              static_cast<const T*>(source.data<T>()));
}

template <typename T>
void reduce_into(const Tensor& destination, const Tensor& source, Reduction reduction) {
    using W = Wrapping<T>;
    switch (reduction) {
        case Reduction::mean:  // a sum that is divided once, at the end
        case Reduction::sum:
            return update<W>(
                destination, source,
                [](const auto& a, const auto& b) -> Lane<W> { return a + b; });
        case Reduction::product:
            return update<W>(
                destination, source,
                [](const auto& a, const auto& b) -> Lane<W> { return a * b; });
        // A NaN on either side gives NaN.
        case Reduction::minimum:
            return update<T>(destination, source,
                             [](const auto& a, const auto& b) -> Lane<T> {
                                 return (a < b || a != a).select(a, b);
                             });
        case Reduction::maximum:
            return update<T>(destination, source,
                             [](const auto& a, const auto& b) -> Lane<T> {
                                 return (a > b || a != a).select(a, b);
                             });
    }
}

/// Drops the fraction, as NCCL does for means of integers. As in a GPU's conversion,
/// values that are too large become the largest value, and NaN the least value.
std::int32_t truncated(double value) {
    using Limits = std::numeric_limits<std::int32_t>;
    if (std::isnan(value)) return Limits::min();
    return static_cast<std::int32_t>(
        std::clamp<double>(value, Limits::min(), Limits::max()));
}

}  // namespace

template <>
void CpuDevice::compute(const ops::Fill& op) {
    if (op.value == 0 && !std::signbit(op.value)) {
        std::memset(op.destination.bytes_begin(), 0,
                    static_cast<std::size_t>(op.destination.bytes()));
        return;
    }
    with_number(op.destination.dtype(), [&]<typename T>(T) {
        std::fill_n(op.destination.data<T>(), op.destination.elements(),
                    static_cast<T>(op.value));
    });
}

template <>
void CpuDevice::compute(const ops::Copy& op) {
    std::memmove(op.destination.bytes_begin(), op.source.bytes_begin(),
                 static_cast<std::size_t>(op.source.bytes()));
}

template <>
void CpuDevice::compute(const ops::CopyColumns& op) {
    const std::int64_t bytes = bytes_of(op.source.dtype());
    const std::int64_t target_pitch = op.destination.shape().columns() * bytes;
    const std::int64_t origin_pitch = op.source.shape().columns() * bytes;
    std::byte* target = op.destination.bytes_begin() + op.to * bytes;
    const std::byte* origin = op.source.bytes_begin() + op.from * bytes;
    for (std::int64_t row = 0; row < op.source.shape().matrix_rows(); ++row)
        std::memcpy(target + row * target_pitch, origin + row * origin_pitch,
                    static_cast<std::size_t>(op.count * bytes));
}

template <>
void CpuDevice::compute(const ops::Combine& op) {
    with_number(op.destination.dtype(), [&]<typename T>(T) {
        reduce_into<T>(op.destination, op.source, op.reduction);
    });
}

template <>
void CpuDevice::compute(const ops::Add& op) {
    if (op.factor == 1)
        return compute(ops::Combine{op.destination, op.source, Reduction::sum});
    with_number(op.destination.dtype(), [&]<typename T>(T) {
        using W = Wrapping<T>;
        const auto factor = static_cast<W>(static_cast<T>(op.factor));
        update<W>(
            op.destination, op.source,
            [factor](const auto& a, const auto& b) -> Lane<W> { return a + factor * b; });
    });
}

template <>
void CpuDevice::compute(const ops::Scale& op) {
    if (op.destination.dtype() == DType::i32) {
        auto* values = op.destination.data<std::int32_t>();
        for (std::int64_t i = 0; i < op.destination.elements(); ++i)
            values[i] = truncated(values[i] * op.factor);
        return;
    }
    with_real(op.destination.dtype(), [&]<typename T>(T) {
        const auto factor = static_cast<T>(op.factor);
        T* data = op.destination.data<T>();
        map_lanes(
            op.destination.elements(), data,
            [factor](const auto& a) -> Lane<T> { return factor * a; },
            static_cast<const T*>(data));
    });
}

template <>
void CpuDevice::compute(const ops::ScaleByTensor& op) {
    with_real(op.destination.dtype(), [&]<typename T>(T) {
        compute(ops::Scale{op.destination, *op.factor.data<T>()});
    });
}

template <>
void CpuDevice::compute(const ops::Multiply& op) {
    compute(ops::Combine{op.destination, op.source, Reduction::product});
}

template <>
void CpuDevice::compute(const ops::Cast& op) {
    with_floating(op.destination.dtype(), [&]<typename To>(To) {
        with_floating(op.source.dtype(), [&]<typename From>(From) {
            const From* from = op.source.data<From>();
            std::transform(from, from + op.source.elements(), op.destination.data<To>(),
                           [](From value) { return static_cast<To>(value); });
        });
    });
}

template <>
void CpuDevice::compute(const ops::Sum& op) {
    if (op.source.dtype() == DType::i32) {
        std::uint32_t sum = 0;
        const auto* values = op.source.data<std::uint32_t>();
        for (std::int64_t i = 0; i < op.source.elements(); ++i)
            sum += values[i];
        auto* result = op.destination.data<std::uint32_t>();
        *result = op.accumulate ? *result + sum : sum;
        return;
    }
    with_real(op.source.dtype(), [&]<typename T>(T) {
        const double sum = sum_lanes(
            op.source.elements(), [](const Lane<T>& x) -> const Lane<T>& { return x; },
            static_cast<const T*>(op.source.data<T>()));
        T* result = op.destination.data<T>();
        *result = static_cast<T>(op.accumulate ? *result + sum : sum);
    });
}

template <>
void CpuDevice::compute(const ops::SumOfSquares& op) {
    with_real(op.x.dtype(), [&]<typename T>(T) {
        const auto square = [](const Lane<T>& x) -> Lane<double> {
            return x.template cast<double>().square();
        };
        const double sum =
            sum_lanes(op.x.elements(), square, static_cast<const T*>(op.x.data<T>()));
        T* result = op.destination.data<T>();
        *result = static_cast<T>(*result + sum);
    });
}

}  // namespace lockstep::sim
