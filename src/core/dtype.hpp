#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include <fmt/core.h>

#include "src/core/bf16.hpp"

namespace lockstep {

/// Element types. Operations on bf16 (src/core/bf16.hpp) are computed in f32, and each
/// result is rounded once.
enum class DType : std::uint8_t { f32, f64, i32, bf16 };

constexpr std::int64_t bytes_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return 4;
        case DType::f64:
            return 8;
        case DType::i32:
            return 4;
        case DType::bf16:
            return 2;
    }
    return 0;
}

constexpr std::string_view name_of(DType dtype) {
    switch (dtype) {
        case DType::f32:
            return "f32";
        case DType::f64:
            return "f64";
        case DType::i32:
            return "i32";
        case DType::bf16:
            return "bf16";
    }
    return "?";
}

constexpr bool is_floating(DType dtype) {
    return dtype != DType::i32;
}

/// Returns the type in which operations on `dtype` are computed, and in which statistics
/// of rows are kept: means, sums of exponentials, losses.
constexpr DType computed_in(DType dtype) {
    return dtype == DType::bf16 ? DType::f32 : dtype;
}

template <typename T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
    return DType::f32;
}
template <>
constexpr DType dtype_of<double>() {
    return DType::f64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
    return DType::i32;
}
template <>
constexpr DType dtype_of<Bf16>() {
    return DType::bf16;
}

}  // namespace lockstep

/// Prints a dtype as its name. Does not use fmt::format_to: every source that prints a
/// dtype would then compile all of fmt.
template <>
struct fmt::formatter<lockstep::DType> {
    constexpr auto parse(fmt::format_parse_context& context) { return context.begin(); }
    template <typename Context>
    auto format(lockstep::DType dtype, Context& context) const {
        const std::string_view name = lockstep::name_of(dtype);
        return std::copy(name.begin(), name.end(), context.out());
    }
};
