#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// The upper half of an f32: the same range, and 8 of its 24 bits of precision. Only
/// storage is bf16. A Bf16 converts exactly to f32; arithmetic is in f32, and its result
/// is rounded to nearest, ties to even. NaN stays NaN. constexpr makes nvcc compile this
/// class for the device, too.
struct Bf16 {
    /// The distance from 1 to the next larger number: 2^-7.
    static constexpr double kEpsilon = 0.0078125;

    std::uint16_t bits = 0;

    constexpr Bf16() = default;
    constexpr explicit Bf16(float value) : bits(rounded(value)) {}
    /// Rounds only once: see to_odd().
    constexpr explicit Bf16(double value) : bits(rounded(to_odd(value))) {}
    constexpr operator float() const {
        return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
    }

  private:
    static constexpr std::uint16_t rounded(float value) {
        const auto whole = std::bit_cast<std::uint32_t>(value);
        constexpr std::uint32_t kQuiet = 0x40;
        if (value != value) return static_cast<std::uint16_t>(whole >> 16 | kQuiet);
        const std::uint32_t even = whole >> 16 & 1;
        return static_cast<std::uint16_t>((whole + 0x7fff + even) >> 16);
    }

    /// Returns `value` if it is an f32. Otherwise returns the neighbouring f32 with an
    /// odd last bit (round to odd), so that rounding once more, to bf16, gives the right
    /// result.
    static constexpr float to_odd(double value) {
        const auto near = static_cast<float>(value);
        const auto whole = std::bit_cast<std::uint32_t>(near);
        const bool is_exact = near == value || value != value;
        if (is_exact || (whole & 1) != 0) return near;
        const bool is_below = value > 0 ? near < value : near > value;
        return std::bit_cast<float>(is_below ? whole + 1 : whole - 1);
    }
};

}  // namespace lockstep
