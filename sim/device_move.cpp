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

/// The type that T is added and multiplied in: integers wrap around, as on GPUs.
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
        // A NaN on either side comes through.
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

/// Without the fraction, as NCCL has means of integers; what is too large for the type
/// becomes its largest, as in a GPU's conversion, and NaN its least.
std::int32_t truncated(double value) {
    using Limits = std::numeric_limits<std::int32_t>;
    if (std::isnan(value)) return Limits::min();
    return static_cast<std::int32_t>(
        std::clamp<double>(value, Limits::min(), Limits::max()));
}

}  // namespace

void Device::do_fill(const Tensor& destination, double value) {
    if (value == 0 && !std::signbit(value)) {
        std::memset(destination.bytes_begin(), 0,
                    static_cast<std::size_t>(destination.bytes()));
        return;
    }
    with_number(destination.dtype(), [&]<typename T>(T) {
        std::fill_n(destination.data<T>(), destination.elements(), static_cast<T>(value));
    });
}

void Device::do_copy(const Tensor& destination, const Tensor& source) {
    std::memmove(destination.bytes_begin(), source.bytes_begin(),
                 static_cast<std::size_t>(source.bytes()));
}

void Device::do_copy_columns(const Tensor& destination, std::int64_t to,
                             const Tensor& source, std::int64_t from,
                             std::int64_t count) {
    const std::int64_t bytes = bytes_of(source.dtype());
    const std::int64_t target_pitch = destination.shape().columns() * bytes;
    const std::int64_t origin_pitch = source.shape().columns() * bytes;
    std::byte* target = destination.bytes_begin() + to * bytes;
    const std::byte* origin = source.bytes_begin() + from * bytes;
    for (std::int64_t row = 0; row < source.shape().rows(); ++row)
        std::memcpy(target + row * target_pitch, origin + row * origin_pitch,
                    static_cast<std::size_t>(count * bytes));
}

void Device::do_add(const Tensor& destination, const Tensor& source, double factor) {
    if (factor == 1) return do_combine(destination, source, Reduction::sum);
    with_number(destination.dtype(), [&]<typename T>(T) {
        using W = Wrapping<T>;
        const auto by = static_cast<W>(static_cast<T>(factor));
        update<W>(destination, source,
                  [by](const auto& a, const auto& b) -> Lane<W> { return a + by * b; });
    });
}

void Device::do_scale(const Tensor& destination, double factor) {
    if (destination.dtype() == DType::i32) {
        auto* values = destination.data<std::int32_t>();
        for (std::int64_t i = 0; i < destination.elements(); ++i)
            values[i] = truncated(values[i] * factor);
        return;
    }
    with_real(destination.dtype(), [&]<typename T>(T) {
        const auto by = static_cast<T>(factor);
        T* data = destination.data<T>();
        map_lanes(
            destination.elements(), data,
            [by](const auto& a) -> Lane<T> { return by * a; },
            static_cast<const T*>(data));
    });
}

void Device::do_multiply(const Tensor& destination, const Tensor& source) {
    do_combine(destination, source, Reduction::product);
}

void Device::do_combine(const Tensor& destination, const Tensor& source,
                        Reduction reduction) {
    with_number(destination.dtype(),
                [&]<typename T>(T) { reduce_into<T>(destination, source, reduction); });
}

void Device::do_sum(const Tensor& destination, const Tensor& source, bool accumulate) {
    if (source.dtype() == DType::i32) {
        std::uint32_t sum = 0;
        const auto* values = source.data<std::uint32_t>();
        for (std::int64_t i = 0; i < source.elements(); ++i)
            sum += values[i];
        auto* result = destination.data<std::uint32_t>();
        *result = accumulate ? *result + sum : sum;
        return;
    }
    with_real(source.dtype(), [&]<typename T>(T) {
        const double sum = sum_lanes(
            source.elements(), [](const Lane<T>& x) -> const Lane<T>& { return x; },
            static_cast<const T*>(source.data<T>()));
        T* result = destination.data<T>();
        *result = static_cast<T>(accumulate ? *result + sum : sum);
    });
}

}  // namespace lockstep::sim
