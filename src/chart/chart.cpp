#include "src/chart/chart.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "src/text/numbers.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

std::string label_of(double units) {
    return fmt::format("{:.12g}", units);
}

/// Returns the smallest round number (…, 0.5, 1, 2, 5, 10, …) that is at least `least`.
double round_step(double least) {
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const double round : {1., 2., 5.})
        // The tolerance is needed because powers of ten below 1 are rounded.
        if (round * power >= least * (1 - 1e-12)) return round * power;
    return 10 * power;
}

}  // namespace

Axis Axis::of_seconds(Picoseconds end) {
    constexpr std::pair<Picoseconds, const char*> kUnits[] = {{kSecond, "s"},
                                                              {kSecond / 1'000, "ms"},
                                                              {1'000'000, "us"},
                                                              {1'000, "ns"},
                                                              {1, "ps"}};
    end = std::max<Picoseconds>(end, 1);
    const auto* unit = std::ranges::find_if(
        kUnits, [&](const auto& candidate) { return candidate.first <= end; });
    return {end, static_cast<double>(unit->first), unit->second};
}

std::vector<AxisTick> Axis::ticks(int most) const {
    const double units = static_cast<double>(end) / per_unit;
    const double step = round_step(std::max(units / std::max(most, 1), 1 / per_unit));
    std::vector<AxisTick> ticks;
    const auto steps = static_cast<int>(units / step * (1 + 1e-12));
    for (int i = 0; i <= steps; ++i)
        ticks.push_back({std::llround(i * step * per_unit), label_of(i * step)});
    return ticks;
}

int Axis::label_size() const {
    // Ticks are round numbers, so three digits are enough for a label.
    const double units = std::max(static_cast<double>(end), 1.) / per_unit;
    const double round = std::pow(10, std::floor(std::log10(units)) - 2);
    return static_cast<int>(label_of(std::round(units / round) * round).size());
}

double Level::total() const {
    return std::accumulate(amounts.begin(), amounts.end(), 0.);
}

int Chart::look(const Look& look) {
    const auto found = std::ranges::find(looks, look);
    const auto place = static_cast<int>(found - looks.begin());
    if (found == looks.end()) looks.push_back(look);
    return place;
}

std::string members_text(const std::vector<int>& members, int most) {
    if (members.size() == 1) return std::to_string(members.front());
    std::string text;
    for (const std::string& range : ranges_of(members)) {
        const std::string separator = text.empty() ? "" : ", ";
        if (!text.empty() &&
            columns_of(text) + columns_of(separator) + columns_of(range) > most) {
            text += ", …";
            break;
        }
        text += separator + range;
    }
    return fmt::format("{} × {}", text, members.size());
}

}  // namespace lockstep
