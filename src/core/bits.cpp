#include "src/core/bits.hpp"

#include <array>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

/// Returns the xor of the two halves of the product of two 64-bit words.
std::uint64_t fold(std::uint64_t a, std::uint64_t b) {
    __extension__ using Wide = unsigned __int128;
    const Wide product = static_cast<Wide>(a) * b;
    return static_cast<std::uint64_t>(product) ^
           static_cast<std::uint64_t>(product >> 64);
}

std::uint64_t word_at(const std::byte* data) {
    std::uint64_t word = 0;
    std::memcpy(&word, data, sizeof word);
    return word;
}

constexpr std::array<std::uint64_t, 4> kKeys{0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F,
                                             0x165667B19E3779F9, 0xD6E8FEB86659FD93};

}  // namespace

std::uint64_t hash_of_bits(const std::byte* data, std::int64_t bytes) {
    // Four lanes of two words each, so that products overlap.
    constexpr std::int64_t kBlock = 64;
    std::array<std::uint64_t, 4> lanes = kKeys;
    std::int64_t place = 0;
    for (; place + kBlock <= bytes; place += kBlock)
        for (std::size_t lane = 0; lane < 4; ++lane) {
            const std::byte* const pair =
                data + place + 16 * static_cast<std::int64_t>(lane);
            lanes[lane] =
                fold(word_at(pair) ^ lanes[lane], word_at(pair + 8) ^ kKeys[lane]) +
                kKeys[3 - lane];
        }
    std::uint64_t hash = static_cast<std::uint64_t>(bytes);
    for (const std::uint64_t lane : lanes)
        hash = fold(hash ^ lane, kKeys[0]) + kKeys[1];
    for (; place + 8 <= bytes; place += 8)
        hash = fold(hash ^ word_at(data + place), kKeys[2]) + kKeys[3];
    if (place < bytes) {
        std::uint64_t rest = 0;
        std::memcpy(&rest, data + place, static_cast<std::size_t>(bytes - place));
        hash = fold(hash ^ rest, kKeys[2]) + kKeys[3];
    }
    return fold(hash ^ kKeys[1], kKeys[0]);
}

BitDifference difference_in_bits(const HostTensor& a, const HostTensor& b) {
    require(a.shape() == b.shape() && a.dtype() == b.dtype(),
            "only tensors of one shape and dtype are compared by bits");
    BitDifference difference;
    const std::int64_t each = bytes_of(a.dtype());
    for (std::int64_t i = 0; i < a.elements(); ++i) {
        if (std::memcmp(a.data() + i * each, b.data() + i * each,
                        static_cast<std::size_t>(each)) == 0)
            continue;
        if (difference.elements++ == 0) difference.first = i;
    }
    return difference;
}

std::string element_text(const Shape& shape, std::int64_t index) {
    std::string text;
    for (int i = shape.dimensions() - 1; i >= 0; --i) {
        text = fmt::format("{}{}{}", index % shape[i], text.empty() ? "" : ", ", text);
        index /= shape[i];
    }
    return "[" + text + "]";
}

std::string value_text(const HostTensor& values, std::int64_t index) {
    const double value = values.at(index);
    if (values.dtype() == DType::i32) return fmt::format("{}", static_cast<int>(value));
    if (std::isnan(value)) return "NaN";
    if (values.dtype() == DType::f64) return fmt::format("{}", value);
    return fmt::format("{}", static_cast<float>(value));
}

}  // namespace lockstep
