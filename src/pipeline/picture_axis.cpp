#include "src/pipeline/picture_axis.hpp"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace lockstep {

namespace {

std::string label_of(double units) {
    return fmt::format("{:.12g}", units);
}

/// The smallest of 1, 2, 5, 10, … and 0.5, 0.2, … that is `least` or more.
double round_step(double least) {
    const double power = std::pow(10, std::floor(std::log10(least)));
    for (const double round : {1., 2., 5.})
        // Powers of ten below 1 are rounded.
        if (round * power >= least * (1 - 1e-12)) return round * power;
    return 10 * power;
}

}  // namespace

int axis_label_size(Picoseconds end, double per_unit) {
    // Ticks are round: three digits are enough to say where one stands.
    const double units = std::max(static_cast<double>(end), 1.) / per_unit;
    const double round = std::pow(10, std::floor(std::log10(units)) - 2);
    return static_cast<int>(
        label_of(std::round(units / round) * round).size());
}

std::vector<AxisTick> axis_ticks(Picoseconds end, double per_unit,
                                 int most) {
    const double units = static_cast<double>(end) / per_unit;
    const double step =
        round_step(std::max(units / std::max(most, 1), 1 / per_unit));
    std::vector<AxisTick> ticks;
    const auto steps = static_cast<int>(units / step * (1 + 1e-12));
    for (int i = 0; i <= steps; ++i)
        ticks.push_back(
            {std::llround(i * step * per_unit), label_of(i * step)});
    return ticks;
}

}  // namespace lockstep
