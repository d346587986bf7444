#pragma once

#include <bit>
#include <cstdint>

namespace lockstep {

/// The upper half of an f32: its range, and 8 bits of its 24 of precision. Numbers are
/// stored so; arithmetic is that of the f32 which a Bf16 is, exactly, and whose result is
/// rounded to nearest, to even where two are as near. NaN stays NaN. constexpr makes nvcc
/// compile it for the device, too.
struct Bf16 {
    /// From a number to the next larger one, as a part of it: 2^-7.
    static constexpr double kEpsilon = 0.0078125;

    std::uint16_t bits = 0;

    constexpr Bf16() = default;
    constexpr explicit Bf16(float value) : bits(rounded(value)) {}
    /// Rounds once, not by way of an f32.
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

    /// Of the two f32 that a number lies between, that with an odd last bit: in what is
    /// rounded off, a half that is not exact shows.
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
