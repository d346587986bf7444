#include "lessons/page/schedule_page.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/messages.hpp"
#include "src/text/json.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

bool ScheduleSettings::is_file() const {
    return name.find('/') != name.npos || name.ends_with(".json") ||
           name.ends_with(".csv");
}

PipelineShape ScheduleSettings::shape() const {
    return {*stages, *micro_batches, chunks.value_or(1)};
}

namespace {

/// Reads a time in billionths, exact to nine decimals, since a double keeps 15 digits.
/// `all` is the option's whole value.
std::int64_t billionths_of(const std::string& option, const std::string& all,
                           std::string_view piece) {
    constexpr double kMost = 1'000'000;
    const std::optional<double> time = parse_number(piece);
    require(time && *time >= 0 && *time <= kMost,
            "{} {}: '{}' is not a number from 0 to {:.0f}; one for all stages, or one a "
            "stage with commas between, is expected",
            option, printable(all), printable(piece), kMost);
    const double billionths = *time * ScheduleSettings::kUnit;
    const double whole = std::round(billionths);
    // A double does not hold every last digit; that is no fault.
    constexpr double kRounding = 1e-6;
    require(std::abs(billionths - whole) <= kRounding * std::max(1.0, whole),
            "{} {}: times count in billionths, so that {} would be rounded; choose a "
            "smaller unit",
            option, printable(all), printable(piece));
    return std::llround(whole);
}

}  // namespace

ScheduleSettings::Times read_times(const std::string& option, const std::string& value) {
    ScheduleSettings::Times times;
    std::string_view rest = value;
    while (true) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        times.push_back(billionths_of(option, value, trimmed(rest.substr(0, comma))));
        if (comma == rest.size()) return times;
        rest.remove_prefix(comma + 1);
    }
}

double read_memory(const std::string& option, const std::string& value) {
    constexpr double kMost = 1e15;
    const std::optional<double> read = parse_typed_number(value);
    require(read && *read >= 0 && *read <= kMost,
            "{} {}: a number from 0 to {} is expected", option, printable(value),
            number_text(kMost));
    return *read;
}

/// A generator has a name, and needs sizes; a file has its own.
void require_known(const ScheduleSettings& settings) {
    if (settings.is_file()) return;
    const std::vector<std::string>& names = schedule_names();
    require(std::ranges::find(names, settings.name) != names.end(), [&] {
        std::string hint = did_you_mean(settings.name, names);
        if (hint.empty())
            hint =
                fmt::format("; there are {}, and files whose names end in .json or .csv",
                            fmt::join(names, ", "));
        return fmt::format("there is no schedule '{}'{}", printable(settings.name), hint);
    });
    for (const auto& [option, size] :
         {std::pair{"--stages", settings.stages},
          std::pair{"--micro-batches", settings.micro_batches}})
        require(size.has_value(), "{} is missing: {} can have any number of them", option,
                settings.name);
}

Schedule generated_schedule(const ScheduleSettings& settings) {
    const PipelineShape shape = settings.shape();
    try {
        return make_schedule(settings.name, shape);
    } catch (const UsageError& error) {
        const std::string chunks =
            settings.chunks ? fmt::format(" --chunks {}", shape.chunks) : "";
        throw UsageError(fmt::format("--stages {} --micro-batches {}{}: {}", shape.stages,
                                     shape.micro_batches, chunks, error.what()));
    }
}

namespace {

/// Times as whole numbers, exact: of the largest tick of which all are multiples.
struct Ticks {
    std::vector<StageDurations> durations;
    double per_unit = 1;
};

Ticks ticks_of(const ScheduleSettings& settings, const Schedule& schedule) {
    using Times = ScheduleSettings::Times;
    // A chunk takes T / v, so a billionth of the unit is v ticks.
    const std::int64_t v = schedule.chunks;
    std::int64_t unit = ScheduleSettings::kUnit * v;
    std::int64_t common = unit;
    std::size_t entries = 1;
    const std::pair<const char*, const Times*> options[] = {
        {"--forward", &settings.forward},
        {"--backward-input", &settings.backward_input},
        {"--backward-weight", &settings.backward_weight},
        {"--comm", &settings.comm}};
    for (const auto& [option, times] : options) {
        const auto stages = static_cast<std::size_t>(schedule.stages);
        require(times->size() == 1 || times->size() == stages,
                "{} has {} numbers; one for all stages, or {}, one a stage, are expected",
                option, times->size(), stages);
        entries = std::max(entries, times->size());
        for (const std::int64_t time : *times)
            common = std::gcd(common, times == &settings.comm ? time * v : time);
    }
    Ticks ticks;
    for (std::size_t stage = 0; stage < entries; ++stage) {
        const auto of = [&](const Times& times, std::int64_t scale) {
            return times[times.size() == 1 ? 0 : stage] * scale / common;
        };
        ticks.durations.push_back(
            {of(settings.forward, 1), of(settings.backward_input, 1),
             of(settings.backward_weight, 1), of(settings.comm, v)});
    }
    const std::int64_t per_unit = unit / common;  // a whole number
    ticks.per_unit = static_cast<double>(per_unit);
    return ticks;
}

/// The only thing that timing can refuse in a schedule without a problem.
Timing timed(const Schedule& schedule, const Ticks& ticks) {
    try {
        return time_schedule(schedule, ticks.durations);
    } catch (const UsageError& error) {
        throw UsageError(
            std::string("--forward, --backward-input, --backward-weight and --comm: ") +
            error.what());
    }
}

/// Returns what a chunk keeps; what is asked for is a stage's.
KeptMemory kept_by_chunk(const ScheduleSettings& settings, const Schedule& schedule) {
    return {settings.kept.activations / schedule.chunks,
            settings.kept.for_weights / schedule.chunks};
}

SchedulePicture picture_of(const ScheduleSettings& settings, const Schedule& schedule,
                           double ticks) {
    SchedulePicture picture;
    picture.title =
        fmt::format("{}: {} stage{}, {} micro-batch{}", printable(schedule.name),
                    schedule.stages, schedule.stages == 1 ? "" : "s",
                    schedule.micro_batches, schedule.micro_batches == 1 ? "" : "es");
    if (schedule.chunks > 1)
        picture.title += fmt::format(", {} chunks a stage", schedule.chunks);
    // Unless there are units to count, chunks are drawn whole.
    const bool counts_chunks =
        settings.kept.activations == 1 && settings.kept.for_weights == 1;
    if (!counts_chunks) picture.kept = kept_by_chunk(settings, schedule);
    picture.ticks = ticks;
    return picture;
}

}  // namespace

ExaminedSchedule examined(const ScheduleSettings& settings, Schedule schedule) {
    const Ticks ticks = ticks_of(settings, schedule);
    ExaminedSchedule made;
    made.problem = find_problem(schedule);
    if (!made.problem) {
        made.timing = timed(schedule, ticks);
        if (settings.messages) {
            schedule = with_messages(schedule, ticks.durations);
            made.timing = timed(schedule, ticks);
        }
        made.shown = {ticks.durations, ticks.per_unit, kept_by_chunk(settings, schedule)};
        made.picture = picture_of(settings, schedule, ticks.per_unit);
    }
    made.schedule = std::move(schedule);
    return made;
}

std::string problem_json(const Schedule& schedule, const ScheduleProblem& problem) {
    std::string cycle;
    for (const Place place : problem.cycle)
        cycle += fmt::format("{}{{\"stage\": {}, \"position\": {}, \"instruction\": {}}}",
                             cycle.empty() ? "" : ",\n  ", place.stage, place.position,
                             json_quoted(text_of(schedule.at(place))));
    return fmt::format("{{\"name\": {},\n \"problem\": {},\n \"cycle\": [{}]}}\n",
                       json_quoted(schedule.name), json_quoted(problem.sentence), cycle);
}

namespace {

/// Seven significant digits.
std::string figure(double value) {
    return fmt::format("{:.7g}", value);
}

std::string counted(std::int64_t count, const std::string& one, const std::string& many) {
    return count_text(count) + " " + (count == 1 ? one : many);
}

}  // namespace

Table bubble_table(const ExaminedSchedule& examined) {
    const Timing& timing = examined.timing;
    const auto time = [&](Picoseconds value) {
        return figure(static_cast<double>(value) / examined.shown.ticks);
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

Table stage_table(const ExaminedSchedule& examined) {
    const std::vector<Holdings> peaks =
        peak_holdings(examined.schedule, examined.shown.kept);
    const auto time = [&](Picoseconds value) {
        return figure(static_cast<double>(value) / examined.shown.ticks);
    };
    const bool versions = std::ranges::any_of(
        peaks, [](const Holdings& peak) { return peak.weight_versions > 1; });
    Table table{
        {"stage", "start", "end", "idle", "in flight", "between halves", "peak memory"},
        {}};
    if (versions) table.head.emplace_back("weight versions");
    for (std::size_t stage = 0; stage < peaks.size(); ++stage) {
        const StageTiming& times = examined.timing.stages[stage];
        const Holdings& peak = peaks[stage];
        table.rows.push_back({std::to_string(stage), time(times.span.start),
                              time(times.span.end), time(times.idle()),
                              std::to_string(peak.in_flight),
                              std::to_string(peak.between), figure(peak.memory)});
        if (versions) table.rows.back().push_back(std::to_string(peak.weight_versions));
    }
    return table;
}

namespace {

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

}  // namespace

std::string critical_path_text(const ExaminedSchedule& examined) {
    constexpr std::size_t kShown = 5;  // at each end
    const Schedule& schedule = examined.schedule;
    const std::vector<Place>& path = examined.timing.critical_path;
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
        "arrives; what takes no time is left out: {}, with {} between stages: {}.",
        path_counts(schedule, path), counted(hops, "hop", "hops"), places);
}

std::vector<std::string> timing_remarks(const Schedule& schedule) {
    std::vector<std::string> remarks{time_origin_text() + " " +
                                     communication_text(schedule)};
    const int copies = schedule.holders(0);
    if (copies > 1)
        remarks.push_back(fmt::format(
            "Parts of the model lie on several stages here, part 0 on {}, so that a "
            "stage holds that many times its share of the model: to compare with "
            "schedules without copies, give as many times the times and the memory.",
            copies));
    return remarks;
}

Document timing_page(const ExaminedSchedule& examined) {
    Document page{{table_of(bubble_table(examined))}, {table_of(stage_table(examined))}};
    page.push_back({Paragraph{words_of(critical_path_text(examined))}});
    for (std::string& remark : timing_remarks(examined.schedule))
        page.push_back({Paragraph{words_of(std::move(remark))}});
    return page;
}

}  // namespace lockstep::lessons
