#pragma once

#include <cmath>
#include <cstdint>
#include <string_view>

namespace lockstep {

// Philox 4x32-10: Salmon et al., "Parallel random numbers: as easy as 1, 2, 3", SC11,
// sections 2 and 4. Counter based: value i of a stream depends only on (seed, stream, i).
// So a shard gets its slice of the whole's values on any device and in any order of
// computation. Everything here is constexpr, so that nvcc compiles it for the device
// unchanged.

/// Four random words.
struct PhiloxWords {
    std::uint32_t word[4];
};

/// The ten rounds of the block cipher that turns a counter into random words under a key.
constexpr PhiloxWords philox(PhiloxWords counter, std::uint32_t key0,
                             std::uint32_t key1) {
    PhiloxWords x = counter;
    for (int round = 0; round < 10; ++round) {
        const std::uint64_t product0 = std::uint64_t{0xD2511F53} * x.word[0];
        const std::uint64_t product1 = std::uint64_t{0xCD9E8D57} * x.word[2];
        const auto high0 = static_cast<std::uint32_t>(product0 >> 32);
        const auto high1 = static_cast<std::uint32_t>(product1 >> 32);
        x = {{high1 ^ x.word[1] ^ key0, static_cast<std::uint32_t>(product1),
              high0 ^ x.word[3] ^ key1, static_cast<std::uint32_t>(product0)}};
        key0 += 0x9E3779B9;  // the golden ratio, the Weyl step of the first key
        key1 += 0xBB67AE85;  // sqrt(3) - 1, the Weyl step of the second key
    }
    return x;
}

/// One sequence of random numbers: a seed, and a number that stands for its purpose.
struct RandomStream {
    std::uint64_t seed = 0;
    std::uint64_t purpose = 0;

    constexpr RandomStream() = default;
    constexpr RandomStream(std::uint64_t seed_value, std::uint64_t purpose_value)
        : seed(seed_value), purpose(purpose_value) {}
    /// The stream of the tensor called `name` (FNV-1a of the name is the purpose).
    constexpr RandomStream(std::uint64_t seed_value, std::string_view name)
        : seed(seed_value) {
        purpose = 0xcbf29ce484222325;
        for (const char c : name)
            purpose = (purpose ^ static_cast<unsigned char>(c)) * 0x100000001b3;
    }

    /// Returns 64 random bits, number `index` of the stream.
    constexpr std::uint64_t bits(std::uint64_t index) const {
        const PhiloxWords words = philox(
            {{static_cast<std::uint32_t>(index), static_cast<std::uint32_t>(index >> 32),
              static_cast<std::uint32_t>(purpose),
              static_cast<std::uint32_t>(purpose >> 32)}},
            static_cast<std::uint32_t>(seed), static_cast<std::uint32_t>(seed >> 32));
        return std::uint64_t{words.word[0]} << 32 | words.word[1];
    }

    /// Uniform in (0, 1): 53 random bits, centred in their cell, so never 0 or 1.
    constexpr double uniform(std::uint64_t index) const { return to_unit(bits(index)); }

    /// Normal with mean 0 and deviation 1: Box and Muller's transform of values 2i and
    /// 2i + 1 of the stream's upper half. uniform() does not use that half.
    template <typename Real = double>
    constexpr Real normal(std::uint64_t index) const {
        constexpr std::uint64_t kUpperHalf = std::uint64_t{1} << 63;
        const Real radius =
            std::sqrt(-2 * std::log(to_unit(bits(kUpperHalf | 2 * index))));
        return radius *
               std::cos(6.283185307179586 * to_unit(bits(kUpperHalf | (2 * index + 1))));
    }

  private:
    static constexpr double to_unit(std::uint64_t bits) {
        return (static_cast<double>(bits >> 11) + 0.5) * 0x1p-53;
    }
};

}  // namespace lockstep
