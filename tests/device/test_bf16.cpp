#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

#include "src/core/bf16.hpp"
#include "tests/catch.hpp"

namespace lockstep::test {

namespace {

/// Returns the bf16 nearest to `value`, by trying all numbers; Bf16 must give the same.
std::uint16_t nearest(double value) {
    std::uint16_t best = 0;
    double distance = std::numeric_limits<double>::infinity();
    for (std::uint32_t bits = 0; bits < 0x10000; ++bits) {
        Bf16 number;
        number.bits = static_cast<std::uint16_t>(bits);
        const double apart = std::abs(static_cast<double>(float{number}) - value);
        if (std::isnan(apart) || std::signbit(float{number}) != std::signbit(value))
            continue;
        if (apart < distance || (apart == distance && bits % 2 == 0)) {
            distance = apart;
            best = number.bits;
        }
    }
    return best;
}

}  // namespace

TEST_CASE("A number becomes the nearest bf16, and of two the even one",
          "[device][bf16]") {
    const double values[] = {0.0,
                             -0.0,
                             1,
                             1 + 0x1p-8,  // half-way between two
                             1 + 3 * 0x1p-8,
                             1 + 0x1p-8 + 0x1p-40,  // f32 would be half-way
                             1 + 0x1p-8 - 0x1p-40,
                             -(1 + 0x1p-8 + 0x1p-40),
                             3.14159265358979,
                             -1e-3,
                             1e38,
                             0x1p-126,
                             0x1p-133,
                             0x1.8p-134,
                             -0x1p-150,
                             1.0 / 3};
    for (const double value : values) {
        CAPTURE(value);
        CHECK(Bf16(value).bits == nearest(value));
        CHECK(Bf16(static_cast<float>(value)).bits ==
              nearest(static_cast<double>(static_cast<float>(value))));
    }
    constexpr double kInfinity = std::numeric_limits<double>::infinity();
    CHECK(float{Bf16(kInfinity)} == static_cast<float>(kInfinity));
    CHECK(float{Bf16(3.4e38)} == static_cast<float>(kInfinity));
    CHECK(float{Bf16(-1e300)} == -static_cast<float>(kInfinity));
    CHECK(std::isnan(float{Bf16(std::numeric_limits<double>::quiet_NaN())}));
    CHECK(std::isnan(float{Bf16(std::numeric_limits<float>::quiet_NaN())}));
    CHECK(std::isnan(float{Bf16(std::bit_cast<float>(0x7f800001U))}));
}

}  // namespace lockstep::test
