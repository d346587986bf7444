#include "lessons/page/figure.hpp"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/text/numbers.hpp"

namespace lockstep::lessons {

namespace {

constexpr std::array<std::string_view, 8> kUnits{
    "number", "bytes", "memory", "time", "seconds", "percent", "decimals", "power"};

}  // namespace

std::string_view name_of(Unit unit) {
    return kUnits[static_cast<std::size_t>(unit)];
}

Unit unit_called(std::string_view name) {
    const auto* found = std::ranges::find(kUnits, name);
    require(found != kUnits.end(), "there is no unit called '{}'", name);
    return static_cast<Unit>(found - kUnits.begin());
}

std::string text_of(const Figure& figure, Language language) {
    const auto whole = [&] { return static_cast<std::int64_t>(figure.value); };
    switch (figure.unit) {
        case Unit::number:
            return number_text(figure.value);
        case Unit::bytes:
            return number_text(figure.value) + " " +
                   said(language, figure.value == 1 ? "byte" : "bytes");
        case Unit::memory:
            return bytes_text(whole());
        case Unit::time:
            return time_text(whole());
        case Unit::seconds:
            return number_text(figure.value) + " s";
        case Unit::percent:
            return fmt::format("{:.{}f} %", figure.value, figure.digits);
        case Unit::decimals:
            return fmt::format("{:.{}f}", figure.value, figure.digits);
        case Unit::power:
            return fmt::format("{:.1e}", figure.value);
    }
    return "";
}

}  // namespace lockstep::lessons
