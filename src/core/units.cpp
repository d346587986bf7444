#include "src/core/units.hpp"

#include <array>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {

namespace {

struct Unit {
    double size;
    const char* name;
};

/// Returns three significant digits of `value`, in the largest unit that `value` reaches.
template <std::size_t N>
std::string scaled_text(double value, const std::array<Unit, N>& units) {
    for (const Unit& unit : units) {
        // 999.6 of a unit would round to 1000, so it is written as 1 of the next larger
        // unit.
        if (std::abs(value) < 0.9995 * unit.size) continue;
        const double scaled = value / unit.size;
        const int decimals = std::abs(scaled) >= 99.95   ? 0
                             : std::abs(scaled) >= 9.995 ? 1
                                                         : 2;
        std::string number = fmt::format("{:.{}f}", scaled, decimals);
        if (number.find('.') != std::string::npos) {
            number.erase(number.find_last_not_of('0') + 1);
            if (number.back() == '.') number.pop_back();
        }
        return number + " " + unit.name;
    }
    return fmt::format("{:.0f} {}", value, units.back().name);
}

}  // namespace

std::string time_text(Picoseconds time) {
    static constexpr std::array<Unit, 5> kUnits{
        {{1e12, "s"}, {1e9, "ms"}, {1e6, "us"}, {1e3, "ns"}, {1, "ps"}}};
    return scaled_text(static_cast<double>(time), kUnits);
}

std::string bytes_text(std::int64_t bytes) {
    static constexpr std::array<Unit, 5> kUnits{{{1024. * 1024 * 1024 * 1024, "TiB"},
                                                 {1024. * 1024 * 1024, "GiB"},
                                                 {1024. * 1024, "MiB"},
                                                 {1024., "KiB"},
                                                 {1, "B"}}};
    return scaled_text(static_cast<double>(bytes), kUnits);
}

std::string count_text(std::int64_t count) {
    std::string digits = std::to_string(count < 0 ? -count : count);
    for (auto at = static_cast<std::ptrdiff_t>(digits.size()) - 3; at > 0; at -= 3)
        digits.insert(static_cast<std::size_t>(at), ",");
    return count < 0 ? "-" + digits : digits;
}

}  // namespace lockstep
