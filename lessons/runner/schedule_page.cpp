#include "lessons/runner/schedule_page.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "src/core/units.hpp"

namespace lockstep::lessons {

namespace {

/// Seven significant digits.
std::string figure(double value) {
    return fmt::format("{:.7g}", value);
}

std::string counted(std::int64_t count, const std::string& one, const std::string& many) {
    return count_text(count) + " " + (count == 1 ? one : many);
}

Table bubble_table(const Timing& timing, double ticks) {
    const auto time = [&](Picoseconds value) {
        return figure(static_cast<double>(value) / ticks);
    };
    const auto percent = [](double part) { return fmt::format("{:.2f} %", 100 * part); };
    return {
        {"whole schedule", ""},
        {{"makespan, from time 0 to the last stage's end", time(timing.makespan)},
         {"the longest stage, from its own start to its own end", time(timing.longest)},
         {"what the busiest stage computes", time(timing.ideal)},
         {"bubble, the difference of these two", time(timing.bubble())},
         {"bubble over total, as GPipe and Zero Bubble divide",
          percent(timing.bubble_over_total())},
         {"bubble over ideal, as Narayanan et al. (SC21) divide",
          percent(timing.bubble_over_ideal())},
         {"utilisation, of all stages until the makespan",
          percent(timing.utilisation())}}};
}

Table stage_table(const Schedule& schedule, const Timing& timing,
                  const TimingJsonOptions& options) {
    const std::vector<Holdings> peaks = peak_holdings(schedule, options.kept);
    const auto time = [&](Picoseconds value) {
        return figure(static_cast<double>(value) / options.ticks);
    };
    const bool versions = std::ranges::any_of(
        peaks, [](const Holdings& peak) { return peak.weight_versions > 1; });
    Table table{
        {"stage", "start", "end", "idle", "in flight", "between halves", "peak memory"},
        {}};
    if (versions) table.head.emplace_back("weight versions");
    for (std::size_t stage = 0; stage < peaks.size(); ++stage) {
        const StageTiming& times = timing.stages[stage];
        const Holdings& peak = peaks[stage];
        table.rows.push_back({std::to_string(stage), time(times.span.start),
                              time(times.span.end), time(times.idle()),
                              std::to_string(peak.in_flight),
                              std::to_string(peak.between), figure(peak.memory)});
        if (versions) table.rows.back().push_back(std::to_string(peak.weight_versions));
    }
    return table;
}

/// "stage 0 F0, F1; stage 1 F1".
std::string places_text(const Schedule& schedule, const std::vector<Place>& path,
                        std::size_t begin, std::size_t end) {
    std::string text;
    for (std::size_t i = begin; i < end; ++i) {
        const bool same = i > begin && path[i].stage == path[i - 1].stage;
        if (!same)
            text += fmt::format("{}stage {}", i > begin ? "; " : "", path[i].stage);
        text += (same ? ", " : " ") + text_of(schedule.at(path[i]));
    }
    return text;
}

std::string path_counts(const Schedule& schedule, const std::vector<Place>& path) {
    const auto of = [&](auto&& wanted) {
        return std::ranges::count_if(
            path, [&](Place place) { return wanted(schedule.at(place).kind); });
    };
    std::string text;
    for (const InstructionKind kind :
         {InstructionKind::forward, InstructionKind::backward,
          InstructionKind::backward_input, InstructionKind::backward_weight}) {
        const auto count = of([&](InstructionKind each) { return each == kind; });
        if (count == 0) continue;
        const std::string name = name_of(kind);
        text += (text.empty() ? "" : ", ") + counted(count, name, name + "s");
    }
    const auto messages = of(is_message);
    if (messages > 0) text += ", " + counted(messages, "message", "messages");
    return text;
}

std::string critical_path_text(const Schedule& schedule, const Timing& timing) {
    constexpr std::size_t kShown = 5;  // at each end
    const std::vector<Place>& path = timing.critical_path;
    if (path.empty()) return "Nothing in it takes time.";
    std::int64_t hops = 0;
    for (std::size_t i = 1; i < path.size(); ++i)
        if (path[i].stage != path[i - 1].stage) ++hops;
    const std::string places =
        path.size() <= 2 * kShown
            ? places_text(schedule, path, 0, path.size())
            : places_text(schedule, path, 0, kShown) + "; …; " +
                  places_text(schedule, path, path.size() - kShown, path.size());
    return fmt::format(
        "A critical path, on which each begins as the one before it ends, or its data "
        "arrives; what takes no time is left out: "
        "{}, with {} between stages: {}.",
        path_counts(schedule, path), counted(hops, "hop", "hops"), places);
}

}  // namespace

void show_timing(Page& page, const Schedule& schedule, const Timing& timing,
                 const TimingJsonOptions& options) {
    page.table(bubble_table(timing, options.ticks));
    page.table(stage_table(schedule, timing, options));
    page.text(critical_path_text(schedule, timing));
    page.text(time_origin_text() + " " + communication_text(schedule));
    const int copies = schedule.holders(0);
    if (copies > 1)
        page.text(fmt::format(
            "Parts of the model lie on several stages here, part 0 on {}, so that a "
            "stage holds that many times its share of the model: to compare with "
            "schedules without copies, give as many times the times and the memory.",
            copies));
}

}  // namespace lockstep::lessons
