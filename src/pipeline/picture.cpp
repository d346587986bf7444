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

/// The looks of instructions, in the order of InstructionKind.
const std::array<Look, kInstructionKinds> kLooks{{
    {Meaning::forward, 'F', '-', "forward"},
    {Meaning::backward, 'B', '=', "backward"},
    {Meaning::backward_input, 'I', '=', "backward, inputs"},
    {Meaning::backward_weight, 'W', '%', "backward, weights"},
    {Meaning::communication, '>', '>', "message sent"},
    {Meaning::communication, '<', '<', "message received", 0.5},
    {Meaning::communication, '>', '>', "message sent"},
    {Meaning::communication, '<', '<', "message received", 0.5},
    {Meaning::communication, 'R', 'r', "reduction of gradients"},
    {Meaning::update, 'U', 'u', "update of weights"},
}};

constexpr bool is_work(InstructionKind kind) {
    return !is_message(kind);
}

/// Later chunks are lighter; odd chunks have lower-case letters.
Look look_of(const Instruction& work, int chunks) {
    constexpr double kLightest = 0.66;
    Look look = kLooks[static_cast<int>(work.kind)];
    if (!is_computation(work.kind) || work.chunk == 0) return look;
    look.lightness = kLightest * work.chunk / (chunks - 1);
    if (work.chunk % 2 != 0) look.letter = static_cast<char>(std::tolower(look.letter));
    return look;
}

/// Versions alternate between two shades.
Look newest_look(int version) {
    return {Meaning::parameters, 'v', ' ', "newest weights",
            version % 2 == 0 ? 0.4 : 0.7};
}

/// The source of a box that belongs to no instruction.
constexpr std::size_t kNoInstruction = static_cast<std::size_t>(-1);

/// From this stage on, a stage has a name but no row: no painter draws more stages.
constexpr int kMostStagesDrawn = 64;

std::string amount_text(double amount) {
    return fmt::format("{:.6g}", amount);
}

/// "s2.5".
std::string id_of(Place place) {
    return fmt::format("s{}.{}", place.stage, place.position);
}

/// Returns the reason why an instruction does not begin earlier.
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

/// Writes whole ticks in full, and other times with seven digits.
std::string time_words(Picoseconds time, double ticks) {
    if (ticks == 1) return std::to_string(time);
    return fmt::format("{:.7g}", static_cast<double>(time) / ticks);
}

BoxWords box_words(const Schedule& schedule, const Timing& timing, double ticks,
                   Place place) {
    const Instruction& work = schedule.at(place);
    const TimeSpan span = timing.span(place);
    const Place before = timing.begins_after(place);
    BoxWords words{{},
                   fmt::format("{} on stage {}, {} to {}\n{}", text_of(work), place.stage,
                               time_words(span.start, ticks), time_words(span.end, ticks),
                               begin_words(schedule, timing, place)),
                   id_of(place),
                   before ? id_of(before) : ""};
    if (!has_micro_batch(work.kind)) return words;
    words.labels = {std::to_string(work.micro_batch)};
    if (work.weight_version >= 0)
        words.labels.insert(words.labels.begin(),
                            fmt::format("{}@{}", work.micro_batch, work.weight_version));
    const Positions together = schedule.together(place);
    for (int i = together.first; i < together.last; ++i)
        if (i != place.position && is_computation(work.kind))
            words.tooltip += "\noverlaps with " + text_of(schedule.at({place.stage, i}));
    return words;
}

/// Returns what a stage holds over time. A forward allocates memory when it begins; a
/// half of a backward releases some when it ends.
Strip held_memory(const Schedule& schedule, const Timing& timing, int stage,
                  const ScheduleMemory& memory, TimeSpan window, int scale) {
    Strip strip{"", {Level{}}, 0, 0};
    HeldByStage held(schedule, stage, memory);
    const auto note = [&](Picoseconds at, const Holdings& now) {
        if (at >= window.end && at > window.start) return;
        const Picoseconds time = (std::max(at, window.start) - window.start) * scale;
        // The strip begins with what is held at the window's start; earlier peaks do not
        // count.
        if (at <= window.start) {
            strip.levels = {Level{}};
            strip.peak = 0;
        }
        const Level level{
            time, {now.activations, now.for_weights, now.recomputed, now.weights}};
        if (strip.levels.back().amounts == level.amounts) return;
        if (strip.levels.back().time == time) strip.levels.pop_back();
        strip.levels.push_back(level);
        if (now.memory <= strip.peak) return;
        strip.peak = now.memory;
        strip.peak_at = time;
    };
    note(0, held.now());
    const int count = static_cast<int>(schedule.of_stage(stage).size());
    for (int position = 0; position < count;) {
        const Positions together = schedule.together({stage, position});
        if (!is_message(schedule.at({stage, position}).kind)) {
            const TimeSpan span = timing.span({stage, position});
            note(span.start, held.run(together));
            note(span.end, held.now());
        }
        position = together.last;
    }
    return strip;
}

class ScheduleChart {
  public:
    ScheduleChart(const Schedule& schedule, const Timing& timing,
                  const SchedulePicture& picture)
        : schedule_(schedule),
          timing_(timing),
          picture_(picture),
          window_(picture.window.value_or(TimeSpan{0, timing.makespan})),
          scale_(has_pairs(schedule) ? 2 : 1),
          axis_{std::max<Picoseconds>(window_.end - window_.start, 1) * scale_,
                picture.ticks * scale_, ""} {
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
    static bool has_pairs(const Schedule& schedule) {
        return std::ranges::any_of(schedule.work, [](const auto& list) {
            return std::ranges::any_of(list, [](const Instruction& each) {
                return each.together && is_computation(each.kind);
            });
        });
    }

    Panel work_panel() {
        Panel panel;
        panel.title = picture_.title;
        panel.end = (window_.end - window_.start) * scale_;
        panel.axis = axis_;
        for (int stage = 0; stage < schedule_.stages; ++stage) {
            RowGroup& group = panel.groups.emplace_back();
            group.members = {stage};
            if (stage >= kMostStagesDrawn) continue;
            group.rows.push_back(row(stage, is_work));
            group.rows.back().shows_idle = true;
            add_versions(stage, group);
            Row lane = row(stage, is_message);
            lane.size = RowSize::small;
            if (!lane.boxes.empty()) group.rows.push_back(std::move(lane));
        }
        panel.words_of = [&schedule = schedule_, &timing = timing_,
                          ticks = picture_.ticks](const RowGroup& group, const Box& box) {
            if (box.source == kNoInstruction)
                return BoxWords{
                    {std::to_string(box.number)},
                    fmt::format("version {} of the weights is the newest", box.number)};
            return box_words(schedule, timing, ticks,
                             {group.members.front(), static_cast<int>(box.source)});
        };
        return panel;
    }

    /// Adds a lane for each chunk whose weights are read after a step. The lane shows the
    /// newest version.
    void add_versions(int stage, RowGroup& group) {
        for (int chunk = 0; chunk < schedule_.chunks; ++chunk) {
            const std::vector<Picoseconds> begins = version_begins(stage, chunk);
            if (begins.empty()) continue;
            Row lane;
            lane.size = RowSize::medium;
            lane.label = schedule_.chunks == 1
                             ? "weights"
                             : fmt::format("weights of chunk {}", chunk);
            for (std::size_t version = 0; version < begins.size(); ++version) {
                const bool last = version + 1 == begins.size();
                const Picoseconds end = last ? timing_.makespan : begins[version + 1];
                const int number = static_cast<int>(version);
                const TimeSpan drawn =
                    in_window({begins[version] * scale_, end * scale_});
                if (drawn.end > drawn.start)
                    lane.boxes.push_back({drawn.start, drawn.end,
                                          chart_.look(newest_look(number)), number, 0,
                                          kNoInstruction});
            }
            group.rows.push_back(std::move(lane));
        }
    }

    /// Returns when each version of a chunk's weights becomes the newest; empty if only
    /// the first version is read.
    std::vector<Picoseconds> version_begins(int stage, int chunk) const {
        std::vector<Picoseconds> begins{0};
        bool later_read = false;
        const std::vector<Instruction>& work = schedule_.of_stage(stage);
        for (std::size_t i = 0; i < work.size(); ++i) {
            if (work[i].chunk != chunk) continue;
            if (work[i].kind == optimizer_step)
                begins.push_back(timing_.spans[stage][i].end);
            else if (is_computation(work[i].kind) && begins.size() > 1)
                later_read = true;
        }
        return later_read ? begins : std::vector<Picoseconds>{};
    }

    /// Returns a row of the wanted instructions that take time; they do not overlap. A
    /// pair is drawn as two boxes, each for half of the pair's time.
    Row row(int stage, bool (*wanted)(InstructionKind)) {
        Row row;
        const std::vector<Instruction>& work = schedule_.of_stage(stage);
        for (std::size_t i = 0; i < work.size(); ++i) {
            const TimeSpan& span = timing_.spans[stage][i];
            if (!wanted(work[i].kind) || span.end <= span.start) continue;
            const int number = is_message(work[i].kind) ? -1 : work[i].micro_batch;
            Picoseconds start = span.start * scale_;
            Picoseconds end = span.end * scale_;
            if (is_computation(work[i].kind)) {
                if (work[i].together) start = (start + end) / 2;
                if (i + 1 < work.size() && work[i + 1].together) end = (start + end) / 2;
            }
            const TimeSpan drawn = in_window({start, end});
            if (drawn.end > drawn.start)
                row.boxes.push_back(
                    {drawn.start, drawn.end, look_place(work[i]), number, 0, i});
        }
        return row;
    }

    /// Returns the part of a box that is drawn, counted from the window's start.
    TimeSpan in_window(TimeSpan scaled) const {
        const Picoseconds first = window_.start * scale_;
        return {std::max(scaled.start, first) - first,
                std::min(scaled.end, window_.end * scale_) - first};
    }

    /// Returns a look's place in the chart. The place is cached: every box needs it.
    int look_place(const Instruction& work) {
        const auto [known, is_new] = looks_.try_emplace({work.kind, work.chunk});
        if (is_new) known->second = chart_.look(look_of(work, schedule_.chunks));
        return known->second;
    }

    Panel held_panel() {
        Panel panel;
        panel.title = held_words();
        panel.end = (window_.end - window_.start) * scale_;
        panel.axis = axis_;
        panel.amount_text = amount_text;
        panel.layers = {
            chart_.look({Meaning::activations, 0, 0, "held for backward"}),
            chart_.look({Meaning::between_halves, 0, 0, "held between its halves"})};
        if (keeps(&KeptMemory::recomputed) || keeps(&KeptMemory::weights)) {
            panel.layers.push_back(chart_.look({Meaning::workspace, 0, 0, "recomputed"}));
            panel.layers.push_back(chart_.look({Meaning::parameters, 0, 0, "weights"}));
        }
        for (int stage = 0; stage < schedule_.stages; ++stage) {
            panel.groups.push_back({{stage}, {}, {}});
            if (stage < kMostStagesDrawn)
                panel.groups.back().strips.push_back(held_memory(
                    schedule_, timing_, stage, picture_.memory, window_, scale_));
        }
        const bool halves = std::ranges::any_of(chart_.looks, [](const Look& look) {
            return look.meaning == Meaning::backward_weight;
        });
        std::string heading = "memory";
        for (const int layer : panel.layers) {
            const Meaning meaning = chart_.looks[layer].meaning;
            const bool unused =
                (meaning == Meaning::between_halves && !halves) ||
                (meaning == Meaning::workspace && !keeps(&KeptMemory::recomputed)) ||
                (meaning == Meaning::parameters && !keeps(&KeptMemory::weights));
            if (unused) continue;
            chart_.legend.push_back(
                {std::exchange(heading, ""), {layer}, chart_.looks[layer].words});
        }
        return panel;
    }

    /// Returns whether any part has this kind of memory.
    bool keeps(double KeptMemory::*kind) const {
        return std::ranges::any_of(picture_.memory.each, [&](const KeptMemory& kept) {
            return kept.*kind != 0;
        });
    }

    std::string held_words() const {
        const std::vector<KeptMemory>& each = picture_.memory.each;
        if (each.size() > 1 || each.front() != KeptMemory{}) return "memory held";
        return schedule_.chunks == 1 ? "held, in micro-batches"
                                     : "held, in micro-batches of a chunk";
    }

    /// Adds the kinds of work, then the chunks; if there are many chunks, only the first
    /// and the last chunk.
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
        for (const Look* look : {&kLooks[4], &kLooks[5], &kLooks[8], &kLooks[9]})
            if (std::ranges::find(chart_.looks, *look) != chart_.looks.end())
                chart_.legend.push_back({"", {chart_.look(*look)}, look->words});
        const Look first = newest_look(0);
        if (std::ranges::find(chart_.looks, first) != chart_.looks.end())
            chart_.legend.push_back(
                {"", {chart_.look(first), chart_.look(newest_look(1))}, first.words});
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
    TimeSpan window_;
    int scale_;  ///< times are doubled to draw halves of pairs
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
