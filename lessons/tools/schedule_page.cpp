#include "lessons/tools/schedule_page.hpp"

#include <algorithm>
#include <cmath>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

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
    return {*stages, *micro_batches, chunks.value_or(1), per_update.value_or(0)};
}

ScheduleSettings::Times read_times(const std::string& option, const std::string& value) {
    ScheduleSettings::Times times;
    std::string_view rest = value;
    while (true) {
        const std::size_t comma = std::min(rest.find(','), rest.size());
        times.push_back(billionths_of(trimmed(rest.substr(0, comma)),
                                      option + " " + printable(value)));
        if (comma == rest.size()) return times;
        rest.remove_prefix(comma + 1);
    }
}

void read_backward(const std::string& option, const std::string& value,
                   ScheduleSettings& settings) {
    ScheduleSettings::Times halves = read_times(option, value);
    for (std::int64_t& time : halves) {
        require(time % 2 == 0,
                "{} {}: each half of backward takes half of this time, which would have "
                "to be rounded to nine decimals",
                option, printable(value));
        time /= 2;
    }
    settings.times["backward_input"] = halves;
    settings.times["backward_weight"] = halves;
}

MessagesAs read_messages_as(const std::string& option, const std::string& value) {
    const std::pair<const char*, MessagesAs> words[] = {
        {"planned", MessagesAs::planned},
        {"groups", MessagesAs::groups},
        {"in-place", MessagesAs::in_place},
        {"by-direction", MessagesAs::by_direction}};
    for (const auto& [word, meaning] : words)
        if (value == word) return meaning;
    throw UsageError(
        fmt::format("{} {}: planned, groups, in-place or by-direction is expected",
                    option, printable(value)));
}

double read_memory(const std::string& option, const std::string& value) {
    const std::optional<double> read = parse_typed_number(value);
    require(read && *read >= 0 && *read <= kMostKeptMemory,
            "{} {}: a number from 0 to {} is expected", option, printable(value),
            number_text(kMostKeptMemory));
    return *read;
}

/// A generator has a name and needs sizes; a file has its own sizes.
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
        std::string sizes = fmt::format("--stages {} --micro-batches {}", shape.stages,
                                        shape.micro_batches);
        if (settings.chunks) sizes += fmt::format(" --chunks {}", shape.chunks);
        if (settings.per_update)
            sizes += fmt::format(" --per-update {}", shape.per_update);
        throw UsageError(sizes + ": " + error.what());
    }
}

namespace {

/// Returns "--backward-input".
std::string option_of(const std::string& name) {
    if (name == "message") return "--comm";
    std::string option = "--" + name;
    std::replace(option.begin(), option.end(), '_', '-');
    return option;
}

/// Returns the file's times, overridden by the times in the settings.
TickedTimes times_of(const ScheduleSettings& settings, const LoadedSchedule& loaded) {
    const Schedule& schedule = loaded.schedule;
    const auto stages = static_cast<std::size_t>(schedule.stages);
    // Without a file's times, settings give the time T of a stage: a chunk takes T / v.
    const int v = schedule.chunks;
    WrittenTimes written = loaded.times.value_or(WrittenTimes{});
    const bool scaled = !loaded.times;
    bool lists = false;
    for (const auto& [name, times] : settings.times) {
        require(times.size() == 1 || times.size() == stages,
                "{} has {} numbers; give one for all stages, or {} (one per stage)",
                option_of(name), times.size(), stages);
        lists = lists || times.size() > 1;
    }
    require(!lists || !written.has_lists(),
            "{}: its file has times for each part, so an option can have only one number "
            "for all stages",
            settings.name);
    written.by_part = !lists;
    for (const auto& [name, times] : settings.times)
        *written.named(name) = times;
    return ticked(written, schedule, scaled ? v : 1);
}

/// The schedule can run, so the only possible error is times that do not fit it.
Examination timed(const Schedule& schedule, const ScheduleTimes& times) {
    try {
        times.require_fit(schedule);
    } catch (const UsageError& error) {
        throw UsageError(std::string("the times: ") + error.what());
    }
    return examine_schedule(schedule, times);
}

/// Returns the memory of each part (or chunk) in the file. The settings override it.
ScheduleMemory memory_of(const ScheduleSettings& settings, const LoadedSchedule& loaded) {
    const double v = loaded.schedule.chunks;
    ScheduleMemory memory = loaded.memory.value_or(KeptMemory{1 / v, 1 / v});
    for (KeptMemory& each : memory.each) {
        if (settings.memory_activation)
            each.activations = *settings.memory_activation / v;
        if (settings.memory_weight) each.for_weights = *settings.memory_weight / v;
    }
    return memory;
}

Schedule with_messages_as(MessagesAs how, const Schedule& schedule,
                          const ScheduleTimes& times) {
    if (how == MessagesAs::none) return schedule;
    if (how == MessagesAs::planned) return with_messages(schedule, times);
    if (how == MessagesAs::groups) return with_grouped_messages(schedule);
    Schedule sent = with_messages_in_place(schedule);
    if (how == MessagesAs::by_direction) sent.queues = MessageQueues::by_direction;
    return sent;
}

SchedulePicture picture_of(const Schedule& schedule, double ticks) {
    SchedulePicture picture;
    picture.title =
        fmt::format("{}: {} stage{}, {} micro-batch{}", printable(schedule.name),
                    schedule.stages, schedule.stages == 1 ? "" : "s",
                    schedule.micro_batches, schedule.micro_batches == 1 ? "" : "es");
    if (schedule.chunks > 1)
        picture.title += fmt::format(", {} chunks a stage", schedule.chunks);
    picture.ticks = ticks;
    return picture;
}

}  // namespace

namespace {

/// Returns the file's endless schedule, or the generator's. If the generator has none,
/// `why_not` says why.
std::optional<Schedule> endless(const ScheduleSettings& settings,
                                const Schedule& schedule, std::string& why_not) {
    if (schedule.period) return schedule;
    if (settings.is_file() || !schedule.file.empty()) return std::nullopt;
    try {
        return make_endless_schedule(settings.name, settings.shape());
    } catch (const UsageError& error) {
        why_not = error.what();
        return std::nullopt;
    }
}

FoundOrder found_order(const Schedule& schedule, const TickedTimes& ticks,
                       const ScheduleMemory& memory, double limit) {
    try {
        return search_order(schedule, ticks.times, memory, limit);
    } catch (const UsageError& error) {
        throw UsageError(fmt::format("--limit {:g}: {}", limit, error.what()));
    }
}

}  // namespace

ExaminedSchedule examined(const ScheduleSettings& settings, LoadedSchedule loaded) {
    const TickedTimes ticks = times_of(settings, loaded);
    const ScheduleMemory memory = memory_of(settings, loaded);
    ExaminedSchedule made;
    made.schedule = std::move(loaded.schedule);
    require(!settings.limit || settings.messages == MessagesAs::none,
            "--limit searches for an order without messages; write the order to a file "
            "with --csv, then use --messages with that file");
    if (settings.limit && !find_problem(made.schedule)) {
        FoundOrder order = found_order(made.schedule, ticks, memory, *settings.limit);
        made.schedule = std::move(order.schedule);
        made.known = std::move(order.known);
        made.limit = settings.limit;
    }
    const std::optional<Schedule> for_ever =
        endless(settings, made.schedule, made.no_period);
    Examination found = timed(made.schedule, ticks.times);
    if (!found.problem && settings.messages != MessagesAs::none) {
        made.schedule = with_messages_as(settings.messages, made.schedule, ticks.times);
        found = timed(made.schedule, ticks.times);
    }
    made.problem = std::move(found.problem);
    if (made.problem) return made;
    made.timing = std::move(found.timing);
    made.shown = {ticks.times, ticks.per_unit, memory};
    const auto add_messages = [&](const Schedule& all) {
        return with_messages_as(settings.messages, all, ticks.times);
    };
    try {
        if (for_ever) made.period = time_period(*for_ever, ticks.times, add_messages);
    } catch (const UsageError& error) {
        made.no_period = error.what();
    }
    made.picture = picture_of(made.schedule, ticks.per_unit);
    // The picture counts whole chunks, unless the file or options give other amounts.
    if (loaded.memory || settings.memory_activation.value_or(1) != 1 ||
        settings.memory_weight.value_or(1) != 1)
        made.picture.memory = memory;
    if (made.period) {
        made.period_picture = made.picture;
        made.period_picture.window = made.period->window;
        made.period_picture.title = fmt::format(
            "{}, again and again: {} micro-batch{}", printable(made.schedule.name),
            made.period->micro_batches, made.period->micro_batches == 1 ? "" : "es");
    }
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

/// Returns seven significant digits.
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
         {"utilisation of all stages over the makespan", percent(timing.utilisation())}}};
}

Table known_table(const ExaminedSchedule& examined) {
    Table table{{"order of the same work", "bubble", "most memory", "fits"}, {}};
    const auto add = [&](const std::string& name, Picoseconds bubble, double memory) {
        table.rows.push_back({name,
                              figure(static_cast<double>(bubble) / examined.shown.ticks),
                              figure(memory), memory <= *examined.limit ? "yes" : "no"});
    };
    double memory = 0;
    for (const Holdings& peak : peak_holdings(examined.schedule, examined.shown.memory))
        memory = std::max(memory, peak.memory);
    add("found here", examined.timing.bubble(), memory);
    for (const KnownOrder& known : examined.known)
        add(known.name, known.bubble, known.memory);
    return table;
}

Table period_table(const ExaminedSchedule& examined) {
    const PeriodTiming& period = *examined.period;
    const auto time = [&](Picoseconds value) {
        return figure(static_cast<double>(value) / examined.shown.ticks);
    };
    return {{"period, once all stages keep one pace", ""},
            {{"micro-batches", std::to_string(period.micro_batches)},
             {"length", time(period.length)},
             {"what the busiest stage computes", time(period.ideal())},
             {"bubble, the difference of these two", time(period.bubble())},
             {"bubble over total",
              fmt::format("{:.2f} %", 100 * period.bubble_over_total())}}};
}

namespace {

/// Returns "3", or "3, 1" for several chunks; "never" for a chunk that is not updated.
std::string updates_late(const std::vector<int>& chunks) {
    std::vector<std::string> texts;
    texts.reserve(chunks.size());
    for (const int late : chunks)
        texts.push_back(late < 0 ? "never" : std::to_string(late));
    return fmt::format("{}", fmt::join(texts, ", "));
}

}  // namespace

Table period_stage_table(const ExaminedSchedule& examined) {
    const PeriodTiming& period = *examined.period;
    const std::vector<Holdings> peaks = peak_holdings(period, examined.shown.memory);
    const std::vector<std::vector<int>> stale = staleness(period);
    Table table{{"stage", "idle", "in flight", "between halves", "peak memory",
                 "weight versions", "updates late"},
                {}};
    for (std::size_t stage = 0; stage < peaks.size(); ++stage) {
        const Holdings& peak = peaks[stage];
        const Picoseconds idle = period.length - period.busy[stage];
        table.rows.push_back({std::to_string(stage),
                              figure(static_cast<double>(idle) / examined.shown.ticks),
                              std::to_string(peak.in_flight),
                              std::to_string(peak.between), figure(peak.memory),
                              std::to_string(peak.weight_versions),
                              updates_late(stale[stage])});
    }
    return table;
}

std::string examined_json(const ExaminedSchedule& examined, bool spans) {
    TimingJsonOptions shown = examined.shown;
    shown.spans = spans;
    if (examined.limit) shown.known = &examined.known;
    if (examined.period) shown.period = &*examined.period;
    return timing_json(examined.schedule, examined.timing, shown);
}

Table stage_table(const ExaminedSchedule& examined) {
    const std::vector<Holdings> peaks =
        peak_holdings(examined.schedule, examined.shown.memory);
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

/// Returns "stage 0 F0, F1; stage 1 F1".
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
    const auto count_where = [&](auto&& wanted) {
        return std::ranges::count_if(
            path, [&](Place place) { return wanted(schedule.at(place).kind); });
    };
    std::string text;
    for (const InstructionKind kind :
         {InstructionKind::forward, InstructionKind::backward,
          InstructionKind::backward_input, InstructionKind::backward_weight}) {
        const auto count =
            count_where([&](InstructionKind each) { return each == kind; });
        if (count == 0) continue;
        const std::string name = name_of(kind);
        text += (text.empty() ? "" : ", ") + counted(count, name, name + "s");
    }
    const auto messages = count_where(is_message);
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
        "A critical path: each instruction begins when the one before it ends or its "
        "data arrives. Instructions that take no time are left out. It has {}, with {} "
        "between stages: {}.",
        path_counts(schedule, path), counted(hops, "hop", "hops"), places);
}

std::vector<std::string> timing_remarks(const Schedule& schedule) {
    std::vector<std::string> remarks{time_origin_text() + " " +
                                     communication_text(schedule)};
    const int copies = schedule.holders(0);
    if (copies > 1)
        remarks.push_back(fmt::format(
            "In this schedule parts of the model are on several stages (part 0 on {}), "
            "so a stage holds that many times its share of the model. To compare with "
            "schedules without copies, multiply the times and the memory by this number.",
            copies));
    return remarks;
}

Document timing_page(const ExaminedSchedule& examined) {
    Document page;
    if (examined.limit) {
        page.push_back({table_of(known_table(examined))});
        page.push_back({Paragraph{
            words_of("This order was found by a search; another order may be better.")}});
    }
    page.push_back({table_of(bubble_table(examined))});
    page.push_back({table_of(stage_table(examined))});
    if (examined.period) {
        page.push_back({table_of(period_table(examined))});
        page.push_back({table_of(period_stage_table(examined))});
    }
    if (!examined.no_period.empty())
        page.push_back({Paragraph{words_of("No period: " + examined.no_period + ".")}});
    page.push_back({Paragraph{words_of(critical_path_text(examined))}});
    for (std::string& remark : timing_remarks(examined.schedule))
        page.push_back({Paragraph{words_of(std::move(remark))}});
    return page;
}

}  // namespace lockstep::lessons
