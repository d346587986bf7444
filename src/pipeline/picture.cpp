#include "src/pipeline/picture.hpp"

#include <algorithm>
#include <array>
#include <cctype>
#include <map>
#include <utility>

#include <fmt/format.h>

namespace lockstep {

using enum InstructionKind;

namespace {

/// In the order of InstructionKind.
const std::array<Look, kInstructionKinds> kLooks{{
    {Meaning::forward, 'F', '-', "forward"},
    {Meaning::backward, 'B', '=', "backward"},
    {Meaning::backward_input, 'I', '=', "backward, inputs"},
    {Meaning::backward_weight, 'W', '%', "backward, weights"},
    {Meaning::communication, '>', '>', "message sent"},
    {Meaning::communication, '<', '<', "message received", 0.5},
    {Meaning::communication, '>', '>', "message sent"},
    {Meaning::communication, '<', '<', "message received", 0.5},
    {},
    {},
}};

constexpr bool is_computation(InstructionKind kind) {
    return has_micro_batch(kind) && !is_message(kind);
}

/// Later chunks are lighter; odd ones have small letters.
Look look_of(const Instruction& work, int chunks) {
    constexpr double kLightest = 0.66;
    Look look = kLooks[static_cast<int>(work.kind)];
    if (!is_computation(work.kind) || work.chunk == 0) return look;
    look.lightness = kLightest * work.chunk / (chunks - 1);
    if (work.chunk % 2 != 0) look.letter = static_cast<char>(std::tolower(look.letter));
    return look;
}

/// Stages beyond these are named, and empty: no painter draws so many.
constexpr int kMostStagesDrawn = 64;

std::string amount_text(double amount) {
    return fmt::format("{:.6g}", amount);
}

/// "s2.5".
std::string id_of(Place place) {
    return fmt::format("s{}.{}", place.stage, place.position);
}

/// Says why an instruction does not begin earlier.
std::string begin_words(const Schedule& schedule, const Timing& timing, Place place) {
    const Place before = timing.begins_after(place);
    if (!before) return "first of its stage";
    const Instruction& work = schedule.at(before);
    const bool stays = before.stage == place.stage;
    if (stays && is_message(work.kind) && is_computation(schedule.at(place).kind))
        return "begins as its message arrives";
    if (stays)
        return fmt::format("begins when {}, the one before it, ends", text_of(work));
    if (timing.span(before).end < timing.span(place).start)
        return fmt::format("begins as the message of {} of stage {} arrives",
                           text_of(work), before.stage);
    return fmt::format("begins as {} of stage {} ends", text_of(work), before.stage);
}

/// Whole ticks as they are, however many; other times with seven digits.
std::string time_words(Picoseconds time, double ticks) {
    if (ticks == 1) return std::to_string(time);
    return fmt::format("{:.7g}", static_cast<double>(time) / ticks);
}

BoxWords box_words(const Schedule& schedule, const Timing& timing, double ticks,
                   Place place) {
    const Instruction& work = schedule.at(place);
    const TimeSpan span = timing.span(place);
    const Place before = timing.begins_after(place);
    return {{std::to_string(work.micro_batch)},
            fmt::format("{} on stage {}, {} to {}\n{}", text_of(work), place.stage,
                        time_words(span.start, ticks), time_words(span.end, ticks),
                        begin_words(schedule, timing, place)),
            id_of(place),
            before ? id_of(before) : ""};
}

/// Memory is taken when a forward begins and given back when a half of backward ends.
Strip held_memory(const Schedule& schedule, const Timing& timing, int stage,
                  const KeptMemory& kept) {
    Strip held{"", {Level{}}, 0, 0};
    Holdings now;
    const std::vector<Instruction>& work = schedule.of(stage);
    for (std::size_t i = 0; i < work.size(); ++i) {
        if (!is_computation(work[i].kind)) continue;
        now.add(work[i], kept);
        const TimeSpan& span = timing.spans[stage][i];
        const Picoseconds time = work[i].kind == forward ? span.start : span.end;
        if (held.levels.back().time == time) held.levels.pop_back();
        held.levels.push_back(
            {time, {now.in_flight * kept.activations, now.between * kept.for_weights}});
        if (now.memory <= held.peak) continue;
        held.peak = now.memory;
        held.peak_at = time;
    }
    return held;
}

class ScheduleChart {
  public:
    ScheduleChart(const Schedule& schedule, const Timing& timing,
                  const SchedulePicture& picture)
        : schedule_(schedule),
          timing_(timing),
          picture_(picture),
          axis_{std::max<Picoseconds>(timing.makespan, 1), picture.ticks, ""} {
        chart_.member = "stage";
        chart_.grows = true;
    }

    Chart chart() {
        chart_.panels.push_back(work_panel());
        add_work_legend();
        chart_.panels.push_back(held_panel());
        return std::move(chart_);
    }

  private:
    Panel work_panel() {
        Panel panel;
        panel.title = picture_.title;
        panel.end = timing_.makespan;
        panel.axis = axis_;
        for (int stage = 0; stage < schedule_.stages; ++stage) {
            RowGroup& group = panel.groups.emplace_back();
            group.members = {stage};
            if (stage >= kMostStagesDrawn) continue;
            group.rows.push_back(row(stage, is_computation));
            group.rows.back().shows_idle = true;
            Row lane = row(stage, is_message);
            lane.size = RowSize::small;
            if (!lane.boxes.empty()) group.rows.push_back(std::move(lane));
        }
        panel.words_of = [&schedule = schedule_, &timing = timing_,
                          ticks = picture_.ticks](const RowGroup& group, const Box& box) {
            return box_words(schedule, timing, ticks,
                             {group.members.front(), static_cast<int>(box.source)});
        };
        return panel;
    }

    /// The wanted instructions that take time; they do not overlap.
    Row row(int stage, bool (*wanted)(InstructionKind)) {
        Row row;
        const std::vector<Instruction>& work = schedule_.of(stage);
        for (std::size_t i = 0; i < work.size(); ++i) {
            const TimeSpan& span = timing_.spans[stage][i];
            if (!wanted(work[i].kind) || span.end <= span.start) continue;
            const int number = is_message(work[i].kind) ? -1 : work[i].micro_batch;
            row.boxes.push_back(
                {span.start, span.end, look_place(work[i]), number, 0, i});
        }
        return row;
    }

    /// The look's place in the chart; asked for every box.
    int look_place(const Instruction& work) {
        const auto [known, is_new] = looks_.try_emplace({work.kind, work.chunk});
        if (is_new) known->second = chart_.look(look_of(work, schedule_.chunks));
        return known->second;
    }

    Panel held_panel() {
        Panel panel;
        panel.title = held_words();
        panel.end = timing_.makespan;
        panel.axis = axis_;
        panel.amount_text = amount_text;
        panel.layers = {
            chart_.look({Meaning::activations, 0, 0, "held for backward"}),
            chart_.look({Meaning::between_halves, 0, 0, "held between its halves"})};
        for (int stage = 0; stage < schedule_.stages; ++stage) {
            panel.groups.push_back({{stage}, {}, {}});
            if (stage < kMostStagesDrawn)
                panel.groups.back().strips.push_back(
                    held_memory(schedule_, timing_, stage, picture_.kept));
        }
        const bool halves = std::ranges::any_of(chart_.looks, [](const Look& look) {
            return look.meaning == Meaning::backward_weight;
        });
        std::string heading = "memory";
        for (const int layer : panel.layers) {
            if (layer == panel.layers.back() && !halves) continue;
            chart_.legend.push_back(
                {std::exchange(heading, ""), {layer}, chart_.looks[layer].words});
        }
        return panel;
    }

    std::string held_words() const {
        if (picture_.kept.activations != 1 || picture_.kept.for_weights != 1)
            return "memory held";
        return schedule_.chunks == 1 ? "held, in micro-batches"
                                     : "held, in micro-batches of a chunk";
    }

    /// The kinds, then the chunks; of many chunks, the first and the last.
    void add_work_legend() {
        constexpr int kMostDrawn = 8;
        std::array<bool, kInstructionKinds> present{};
        for (const std::vector<Instruction>& list : schedule_.work)
            for (const Instruction& work : list)
                present[static_cast<int>(work.kind)] = true;
        std::vector<Instruction> kinds;
        for (int k = 0; k < kInstructionKinds; ++k) {
            const Instruction work{static_cast<InstructionKind>(k), 0};
            if (!present[k] || !is_computation(work.kind)) continue;
            kinds.push_back(work);
            chart_.legend.push_back(entry({work}, kLooks[k].words));
        }
        const int chunks = schedule_.chunks;
        const int step = chunks <= kMostDrawn ? 1 : chunks - 1;
        for (int chunk = 0; chunks > 1 && chunk < chunks; chunk += step) {
            for (Instruction& work : kinds)
                work.chunk = chunk;
            chart_.legend.push_back(entry(kinds, fmt::format("chunk {}", chunk)));
        }
        for (const Look* look : {&kLooks[4], &kLooks[5]})
            if (std::ranges::find(chart_.looks, *look) != chart_.looks.end())
                chart_.legend.push_back({"", {chart_.look(*look)}, look->words});
    }

    LegendEntry entry(const std::vector<Instruction>& works, const std::string& words) {
        LegendEntry entry{"", {}, words};
        for (const Instruction& work : works)
            entry.looks.push_back(chart_.look(look_of(work, schedule_.chunks)));
        return entry;
    }

    const Schedule& schedule_;
    const Timing& timing_;
    const SchedulePicture& picture_;
    Axis axis_;
    Chart chart_;
    std::map<std::pair<InstructionKind, int>, int> looks_;
};

}  // namespace

Chart schedule_chart(const Schedule& schedule, const Timing& timing,
                     const SchedulePicture& picture) {
    return ScheduleChart(schedule, timing, picture).chart();
}

}  // namespace lockstep
