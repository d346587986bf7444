#include "src/pipeline/picture_look.hpp"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <string_view>

#include <fmt/format.h>

namespace lockstep {

using enum InstructionKind;

namespace {

constexpr SpanLook kWholeBesideHalves{'B', '=', "backward, both",
                                      "\x1b[30;45m", "#CC79A7"};

SpanLook phase_look(InstructionKind kind) {
    TraceEvent event;
    event.kind = "phase";
    event.name = name_of(kind);
    return lockstep::look_of(event);
}

const char* bright_ansi(InstructionKind kind, bool mixed) {
    if (kind == InstructionKind::forward) return "\x1b[30;106m";
    if (kind == InstructionKind::backward_weight) return "\x1b[30;102m";
    return kind == backward && mixed ? "\x1b[30;105m" : "\x1b[30;103m";
}

/// One of the three colours in "#56B4E9", `part` of the way to white.
int lighter(std::string_view colour, std::size_t at, double part) {
    const int value =
        std::stoi(std::string(colour.substr(at, 2)), nullptr, 16);
    return static_cast<int>(std::lround(value + (255 - value) * part));
}

}  // namespace

ScheduleLook::ScheduleLook(const Schedule& schedule)
    : chunks_(schedule.chunks) {
    std::array<bool, kInstructionKinds> present{};
    for (const std::vector<Instruction>& list : schedule.work)
        for (const Instruction& each : list)
            present[static_cast<std::size_t>(each.kind)] = true;
    for (int k = 0; k < kInstructionKinds; ++k) {
        const auto kind = static_cast<InstructionKind>(k);
        const auto at = static_cast<std::size_t>(k);
        if (!is_computation(kind)) continue;
        if (present[at]) kinds_.push_back(kind);
        looks_[at] = phase_look(kind);
    }
    const auto has = [&](InstructionKind kind) {
        return present[static_cast<std::size_t>(kind)];
    };
    if (has(backward) && (has(InstructionKind::backward_input) ||
                          has(InstructionKind::backward_weight)))
        looks_[static_cast<std::size_t>(backward)] = kWholeBesideHalves;
}

SpanLook ScheduleLook::of(InstructionKind kind, int chunk) const {
    SpanLook look = looks_[static_cast<std::size_t>(kind)];
    if (chunk % 2 == 0) return look;
    look.letter = static_cast<char>(std::tolower(look.letter));
    look.ansi = bright_ansi(kind, look.words == kWholeBesideHalves.words);
    return look;
}

std::string ScheduleLook::colour(InstructionKind kind, int chunk) const {
    constexpr double kLightest = 0.66;
    const std::string_view full =
        looks_[static_cast<std::size_t>(kind)].colour;
    if (chunks_ == 1 || chunk == 0) return std::string(full);
    const double part = kLightest * chunk / (chunks_ - 1);
    return fmt::format("#{:02X}{:02X}{:02X}", lighter(full, 1, part),
                       lighter(full, 3, part), lighter(full, 5, part));
}

}  // namespace lockstep
