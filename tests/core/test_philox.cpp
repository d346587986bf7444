#include <cmath>
#include <string>
#include <vector>

#include "src/core/philox.hpp"
#include "tests/catch.hpp"

namespace lockstep {

namespace {

std::vector<std::uint32_t> words(PhiloxWords counter, std::uint32_t key0,
                                 std::uint32_t key1) {
    const PhiloxWords x = philox(counter, key0, key1);
    return {x.word[0], x.word[1], x.word[2], x.word[3]};
}

}  // namespace

TEST_CASE("Philox 4x32-10 gives Random123's known answers", "[core]") {
    using Words = std::vector<std::uint32_t>;
    REQUIRE(words({{0, 0, 0, 0}}, 0, 0) ==
            Words{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8});
    constexpr std::uint32_t kOnes = 0xffffffff;
    REQUIRE(words({{kOnes, kOnes, kOnes, kOnes}}, kOnes, kOnes) ==
            Words{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd});
    REQUIRE(words({{0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}}, 0xa4093822,
                  0x299f31d0) == Words{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1});
}

TEST_CASE("Philox can be computed while compiling, as nvcc needs it", "[core]") {
    static_assert(philox({{0, 0, 0, 0}}, 0, 0).word[0] == 0x6627e8d5);
    static_assert(RandomStream(1, "a").bits(0) != RandomStream(1, "b").bits(0));
}

TEST_CASE("Streams of different seeds, names or numbers differ", "[core]") {
    const RandomStream stream(1, "weight");
    REQUIRE(stream.bits(7) == RandomStream(1, "weight").bits(7));
    REQUIRE(stream.bits(7) != stream.bits(8));
    REQUIRE(stream.bits(7) != stream.bits(7 + (std::uint64_t{1} << 32)));
    REQUIRE(stream.bits(7) != RandomStream(2, "weight").bits(7));
    REQUIRE(stream.bits(7) != RandomStream(std::uint64_t{1} << 32 | 1, "weight").bits(7));
    REQUIRE(stream.bits(7) != RandomStream(1, "bias").bits(7));
    REQUIRE(RandomStream(1, 5).bits(0) !=
            RandomStream(1, std::uint64_t{5} << 32).bits(0));
}

TEST_CASE("Uniform values fill (0, 1) evenly", "[core]") {
    const RandomStream stream(7, "uniform");
    constexpr int kCount = 100000;
    double sum = 0, squares = 0;
    std::vector<int> tenths(10);
    for (std::uint64_t i = 0; i < kCount; ++i) {
        const double u = stream.uniform(i);
        REQUIRE((u > 0 && u < 1));
        sum += u;
        squares += u * u;
        ++tenths[static_cast<std::size_t>(10 * u)];
    }
    // Four standard deviations of each mean.
    using Catch::Matchers::WithinAbs;
    REQUIRE_THAT(sum / kCount, WithinAbs(0.5, 4 * std::sqrt(1.0 / 12 / kCount)));
    REQUIRE_THAT(squares / kCount, WithinAbs(1.0 / 3, 4 * std::sqrt(4.0 / 45 / kCount)));
    for (const int count : tenths)
        REQUIRE_THAT(count, WithinAbs(0.1 * kCount, 4 * std::sqrt(0.09 * kCount)));
}

TEST_CASE("Normal values have mean 0, variance 1 and the normal's tails", "[core]") {
    const RandomStream stream(7, "normal");
    constexpr int kCount = 100000;
    double sum = 0, squares = 0, cubes = 0, fourths = 0, lagged = 0, before = 0;
    int within = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) {
        const double z = stream.normal(i);
        sum += z;
        squares += z * z;
        cubes += z * z * z;
        fourths += z * z * z * z;
        lagged += z * before;
        before = z;
        if (std::abs(z) < 1) ++within;
    }
    // Four standard deviations of each mean; z^4 has variance 96, z^3 15, z^2 2.
    using Catch::Matchers::WithinAbs;
    const auto bound = [](double variance) { return 4 * std::sqrt(variance / kCount); };
    REQUIRE_THAT(sum / kCount, WithinAbs(0, bound(1)));
    REQUIRE_THAT(squares / kCount, WithinAbs(1, bound(2)));
    REQUIRE_THAT(cubes / kCount, WithinAbs(0, bound(15)));
    REQUIRE_THAT(fourths / kCount, WithinAbs(3, bound(96)));
    REQUIRE_THAT(lagged / kCount, WithinAbs(0, bound(1)));
    const double share = std::erf(1 / std::sqrt(2.0));
    REQUIRE_THAT(double{1} * within / kCount,
                 WithinAbs(share, bound(share * (1 - share))));
}

TEST_CASE("Normal and uniform values of a stream are independent", "[core]") {
    // If a normal's radius or angle came from the uniform values 2i and 2i + 1, these
    // sums would show it.
    const RandomStream stream(7, "x");
    constexpr int kCount = 10000;
    double radius = 0, angle = 0;
    for (std::uint64_t i = 0; i < kCount; ++i) {
        const double z = stream.normal(i);
        radius += (z * z - 1) * (stream.uniform(2 * i) - 0.5);
        angle += z * std::cos(6.283185307179586 * stream.uniform(2 * i + 1));
    }
    using Catch::Matchers::WithinAbs;
    REQUIRE_THAT(radius / kCount, WithinAbs(0, 4 * std::sqrt(2.0 / 12 / kCount)));
    REQUIRE_THAT(angle / kCount, WithinAbs(0, 4 * std::sqrt(0.5 / kCount)));
}

}  // namespace lockstep
