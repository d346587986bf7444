#include "src/pipeline/times.hpp"

#include <algorithm>

#include "src/core/require.hpp"

namespace lockstep {

using enum InstructionKind;

Picoseconds Durations::of_kind(InstructionKind kind) const {
    switch (kind) {
        case InstructionKind::forward:
            return forward;
        case backward:
            return recompute + backward_input + backward_weight;
        case InstructionKind::backward_input:
            return recompute + backward_input;
        case InstructionKind::backward_weight:
            return backward_weight;
        case reduce_gradients:
            return reduce;
        case optimizer_step:
            return update;
        default:
            return message;
    }
}

Picoseconds ScheduleTimes::of_work(const Schedule& schedule, Positions together,
                                   int stage) const {
    Picoseconds in_turn = 0;
    Picoseconds overlapped = -1;
    for (int position = together.first; position < together.last; ++position) {
        const Place place{stage, position};
        const Durations& own = of_place(schedule, place);
        in_turn += own.of_kind(schedule.at(place).kind);
        overlapped = std::max(overlapped, own.overlapped);
    }
    return together.count() > 1 && overlapped >= 0 ? overlapped : in_turn;
}

Picoseconds ScheduleTimes::of_message(const Schedule& schedule, Place from,
                                      Place to) const {
    const auto link =
        links.empty() ? links.end() : links.find(std::minmax(from.stage, to.stage));
    if (link != links.end()) return link->second;
    if (each.size() == 1) return each.front().message;
    const int before = std::min(schedule.part(from), schedule.part(to));
    return each[by_part ? before : from.stage].message;
}

void ScheduleTimes::require_fit(const Schedule& schedule) const {
    const auto expected =
        static_cast<std::size_t>(by_part ? schedule.part_count() : schedule.stages);
    require(each.size() == 1 || each.size() == expected,
            "durations of {} {} for a schedule of {}; one for all, or one for each is "
            "expected",
            each.size(), by_part ? "parts" : "stages", expected);
    double longest = 0;
    const auto add = [&](Picoseconds time) {
        require(time >= 0, "a duration of {}; none may be negative", time);
        longest += static_cast<double>(time);
    };
    for (const Durations& own : each) {
        for (const Picoseconds time :
             {own.forward, own.backward_input, own.backward_weight, own.message,
              own.recompute, own.reduce, own.update})
            add(time);
        if (own.overlapped != -1) add(own.overlapped);
    }
    for (const auto& [stages, time] : links) {
        require(0 <= stages.first && stages.first < stages.second &&
                    stages.second < schedule.stages,
                "a link between stages {} and {}; two different ones of the {} stages "
                "are expected, the lower first",
                stages.first, stages.second, schedule.stages);
        add(time);
    }
    constexpr double kMostTime = 4e18;
    require(longest * schedule.instructions() < kMostTime,
            "{} instructions with these durations may take longer than can be counted "
            "({:.0e})",
            schedule.instructions(), kMostTime);
}

}  // namespace lockstep
