#include "src/pipeline/picture_held.hpp"

#include <algorithm>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

#include "src/pipeline/picture_look.hpp"

namespace lockstep {

namespace {

constexpr std::string_view kDigits = ".123456789abcdefghijklmnopqrstuvwxyz";

}  // namespace

HeldMemory held_memory(const Schedule& schedule, const Timing& timing,
                       int stage, const KeptMemory& kept) {
    HeldMemory held{{{0, 0, 0}}};
    Holdings now;
    const std::vector<Instruction>& work = schedule.of(stage);
    const auto& spans = timing.spans[stage];
    for (std::size_t i = 0; i < work.size(); ++i) {
        if (!is_computation(work[i].kind)) continue;
        now.add(work[i], kept);
        const bool takes = work[i].kind == InstructionKind::forward;
        const Picoseconds time = takes ? spans[i].start : spans[i].end;
        if (held.levels.back().time == time) held.levels.pop_back();
        held.levels.push_back({time, now.in_flight * kept.activations,
                               now.between * kept.for_weights});
        if (now.memory <= held.peak) continue;
        held.peak = now.memory;
        held.peak_at = time;
    }
    return held;
}

std::string held_text(double held) {
    return fmt::format("{:.6g}", held);
}

std::string held_words(const Schedule& schedule, const KeptMemory& kept) {
    if (kept.activations != 1 || kept.for_weights != 1)
        return "memory held";
    return schedule.chunks == 1 ? "held, in micro-batches"
                                : "held, in micro-batches of a chunk";
}

HeldDigits::HeldDigits(const std::vector<HeldMemory>& stages) {
    for (const HeldMemory& held : stages) {
        most_ = std::max(most_, held.peak);
        for (const HeldLevel& level : held.levels)
            if (level.total() != std::floor(level.total())) exact_ = false;
    }
    if (most_ >= static_cast<double>(kDigits.size())) exact_ = false;
}

char HeldDigits::digit(double held) const {
    if (held <= 0) return kDigits.front();
    const double value =
        exact_ ? held : std::max(std::ceil(held / most_ * 9 - 1e-9), 1.);
    return kDigits[value];
}

std::string HeldDigits::words() const {
    if (!exact_) return fmt::format("; 9 is {}", held_text(most_));
    return most_ > 9 ? fmt::format("; {} is {}", digit(most_), most_) : "";
}

std::string HeldDigits::columns(const HeldMemory& held,
                                const CellGrid& grid,
                                Picoseconds end) const {
    std::vector<double> highest(static_cast<std::size_t>(grid.columns));
    for (std::size_t i = 0; i < held.levels.size(); ++i) {
        const HeldLevel& level = held.levels[i];
        const bool last = i + 1 == held.levels.size();
        const Picoseconds until = last ? end : held.levels[i + 1].time;
        if (until <= level.time) continue;
        const int first = grid.column_of(level.time);
        const int behind = std::min(
            std::max(grid.column_of(until), first + 1), grid.columns);
        for (int c = first; c < behind; ++c) {
            double& column = highest[c];
            column = std::max(column, level.total());
        }
    }
    std::string text;
    for (const double level : highest)
        text += digit(level);
    return text;
}

}  // namespace lockstep
