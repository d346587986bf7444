#include "src/report/time_axis.hpp"

#include <algorithm>
#include <array>
#include <utility>

namespace lockstep {

std::string decimal_text(std::int64_t value, std::int64_t unit) {
    std::string text = std::to_string(value / unit);
    std::int64_t rest = value % unit;
    if (rest == 0) return text;
    text += '.';
    while (rest != 0) {
        unit /= 10;
        text += static_cast<char>('0' + rest / unit);
        rest %= unit;
    }
    return text;
}

TimeAxis TimeAxis::of(Picoseconds end, int ticks) {
    constexpr std::array<std::pair<Picoseconds, const char*>, 5> kUnits{
        {{kSecond, "s"},
         {kSecond / 1000, "ms"},
         {1'000'000, "us"},
         {1'000, "ns"},
         {1, "ps"}}};
    TimeAxis axis;
    axis.end = std::max<Picoseconds>(end, 1);
    const Picoseconds least = (axis.end + ticks - 1) / std::max(ticks, 1);
    for (Picoseconds power = 1; axis.step < least && power <= kSecond * 100'000;
         power *= 10)
        for (const Picoseconds round : {power, 2 * power, 5 * power})
            if (axis.step < least) axis.step = round;
    const auto* unit = std::ranges::find_if(
        kUnits, [&](const auto& candidate) { return candidate.first <= axis.end; });
    axis.unit = unit->first;
    axis.unit_name = unit->second;
    return axis;
}

}  // namespace lockstep
