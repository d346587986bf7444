#include <algorithm>
#include <cmath>
#include <numeric>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/page/terminal_text.hpp"
#include "lessons/runner/command_line.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/chart/svg.hpp"
#include "src/chart/text.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/pipeline/generators.hpp"
#include "src/pipeline/load_schedule.hpp"
#include "src/pipeline/messages.hpp"
#include "src/pipeline/picture.hpp"
#include "src/pipeline/schedule_json.hpp"
#include "src/pipeline/validate.hpp"
#include "src/report/files.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

bool ScheduleRequest::is_file() const {
    return name.find('/') != name.npos || name.ends_with(".json") ||
           name.ends_with(".csv");
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
    const double billionths = *time * ScheduleRequest::kUnit;
    const double whole = std::round(billionths);
    // A double does not hold every last digit; that is no fault.
    constexpr double kRounding = 1e-6;
    require(std::abs(billionths - whole) <= kRounding * std::max(1.0, whole),
            "{} {}: times count in billionths, so that {} would be rounded; choose a "
            "smaller unit",
            option, printable(all), printable(piece));
    return std::llround(whole);
}

/// Takes "1,2.5,1".
Take times_into(ScheduleRequest::Times& times) {
    return [&times](const std::string& option, const std::string& value) {
        times.clear();
        std::string_view rest = value;
        while (true) {
            const std::size_t comma = std::min(rest.find(','), rest.size());
            times.push_back(billionths_of(option, value, trimmed(rest.substr(0, comma))));
            if (comma == rest.size()) return;
            rest.remove_prefix(comma + 1);
        }
    };
}

Take memory_into(double& memory) {
    return [&memory](const std::string& option, const std::string& value) {
        constexpr double kMost = 1e15;
        const std::optional<double> read = parse_typed_number(value);
        require(read && *read >= 0 && *read <= kMost,
                "{} {}: a number from 0 to {} is expected", option, printable(value),
                number_text(kMost));
        memory = *read;
    };
}

/// A generator has a name, and needs sizes; a file has its own.
void require_known(const ScheduleRequest& request) {
    if (request.is_file()) return;
    const std::vector<std::string>& names = schedule_names();
    require(std::ranges::find(names, request.name) != names.end(), [&] {
        std::string hint = did_you_mean(request.name, names);
        if (hint.empty())
            hint =
                fmt::format("; there are {}, and files whose names end in .json or .csv",
                            fmt::join(names, ", "));
        return fmt::format("there is no schedule '{}'{}", printable(request.name), hint);
    });
    for (const auto& [option, size] :
         {std::pair{"--stages", request.stages},
          std::pair{"--micro-batches", request.micro_batches}})
        require(size.has_value(), "{} is missing: {} can have any number of them", option,
                request.name);
}

void declare_times(Command& command, ScheduleRequest& request) {
    command.option("--forward", "T", "a stage's forward of a micro-batch; default 1",
                   times_into(request.forward));
    command.option("--backward-input", "T",
                   "the half of backward that is sent on; default 1",
                   times_into(request.backward_input));
    command.option("--backward-weight", "T",
                   "the half that is the stage's own; default 1",
                   times_into(request.backward_weight));
    command.option("--comm", "T", "a message to another stage; default 0",
                   times_into(request.comm));
}

}  // namespace

void declare_schedule(CommandLine& line) {
    Command& command = line.add(
        "schedule",
        "Times and draws a pipeline schedule: its bubble, what each stage holds, its "
        "critical path. Times are in any unit: one number for all stages, or one a stage "
        "with commas between, as in 1,2,1,1. Exit status 1 if the schedule deadlocks.");
    auto& request = command.asks_for<ScheduleRequest>();
    request.kept = {1, 1};
    command.positional("NAME",
                       either(schedule_names()) + ", or the path of a .json or .csv file",
                       text_into(request.name));
    command.suggest(schedule_names());
    command.option("--stages", "P", "devices in a row; a file has its own",
                   whole_into(request.stages, 1, kMostStages));
    command.option("--micro-batches", "M", "parts of a batch; a file has its own",
                   whole_into(request.micro_batches, 1, kMostMicroBatches));
    command.option("--chunks", "V",
                   "parts of the model on a stage, of interleaved; default 1",
                   whole_into(request.chunks, 1, kMostChunks));
    declare_times(command, request);
    command.flag("--messages",
                 "give the schedule its messages, which then go one at a time on each "
                 "stage; without them data takes its time and never waits for other data",
                 request.messages);
    command.option("--memory-activation", "A",
                   "what a stage keeps of a micro-batch until its backward-input, all "
                   "its chunks together; default 1",
                   memory_into(request.kept.activations));
    command.option("--memory-weight", "K",
                   "and then until its backward-weight; default 1",
                   memory_into(request.kept.for_weights));
    command.option("--svg", "FILE", "draw it there as well", path_into(request.svg));
    command.flag("--json", kJsonMeaning, request.json);
    command.finally([&request] { require_known(request); });
}

namespace {

Schedule generated(const ScheduleRequest& request) {
    const PipelineShape shape{*request.stages, *request.micro_batches,
                              request.chunks.value_or(1)};
    try {
        return make_schedule(request.name, shape);
    } catch (const UsageError& error) {
        const std::string chunks =
            request.chunks ? fmt::format(" --chunks {}", shape.chunks) : "";
        throw UsageError(fmt::format("--stages {} --micro-batches {}{}: {}", shape.stages,
                                     shape.micro_batches, chunks, error.what()));
    }
}

Schedule loaded(const ScheduleRequest& request) {
    Schedule schedule = load_schedule(request.name);
    struct Size {
        const char* option;
        std::optional<int> asked;
        int has;
    };
    for (const Size& size :
         {Size{"--stages", request.stages, schedule.stages},
          Size{"--micro-batches", request.micro_batches, schedule.micro_batches},
          Size{"--chunks", request.chunks, schedule.chunks}})
        require(!size.asked || *size.asked == size.has, [&] {
            return fmt::format(
                "{} {}: the schedule in {} has {}; a file's sizes are its own",
                size.option, *size.asked, request.name, size.has);
        });
    require(!request.messages || !schedule.has_messages(),
            "--messages: the schedule in {} has messages already", request.name);
    return schedule;
}

/// Times as whole numbers, exact: of the largest tick of which all are multiples.
struct Ticks {
    std::vector<StageDurations> durations;
    double per_unit = 1;
};

Ticks ticks_of(const ScheduleRequest& request, const Schedule& schedule) {
    using Times = ScheduleRequest::Times;
    // A chunk takes T / v, so a billionth of the unit is v ticks.
    const std::int64_t v = schedule.chunks;
    std::int64_t unit = ScheduleRequest::kUnit * v;
    std::int64_t common = unit;
    std::size_t entries = 1;
    const std::pair<const char*, const Times*> options[] = {
        {"--forward", &request.forward},
        {"--backward-input", &request.backward_input},
        {"--backward-weight", &request.backward_weight},
        {"--comm", &request.comm}};
    for (const auto& [option, times] : options) {
        const auto stages = static_cast<std::size_t>(schedule.stages);
        require(times->size() == 1 || times->size() == stages,
                "{} has {} numbers; one for all stages, or {}, one a stage, are expected",
                option, times->size(), stages);
        entries = std::max(entries, times->size());
        for (const std::int64_t time : *times)
            common = std::gcd(common, times == &request.comm ? time * v : time);
    }
    Ticks ticks;
    for (std::size_t stage = 0; stage < entries; ++stage) {
        const auto of = [&](const Times& times, std::int64_t scale) {
            return times[times.size() == 1 ? 0 : stage] * scale / common;
        };
        ticks.durations.push_back({of(request.forward, 1), of(request.backward_input, 1),
                                   of(request.backward_weight, 1), of(request.comm, v)});
    }
    const std::int64_t per_unit = unit / common;  // a whole number
    ticks.per_unit = static_cast<double>(per_unit);
    return ticks;
}

std::string deadlock_json(const Schedule& schedule, const ScheduleProblem& problem) {
    std::string cycle;
    for (const Place place : problem.cycle)
        cycle += fmt::format("{}{{\"stage\": {}, \"position\": {}, \"instruction\": {}}}",
                             cycle.empty() ? "" : ",\n  ", place.stage, place.position,
                             json_quoted(text_of(schedule.at(place))));
    return fmt::format("{{\"name\": {},\n \"problem\": {},\n \"cycle\": [{}]}}\n",
                       json_quoted(schedule.name), json_quoted(problem.sentence), cycle);
}

/// Says on standard error why the schedule deadlocks. Throws what else is wrong with it.
int explain(const ScheduleRequest& request, const Schedule& schedule,
            const ScheduleProblem& problem) {
    require(!problem.cycle.empty(), [&] { return problem.sentence; });
    if (request.json) print(deadlock_json(schedule, problem));
    write_all(STDERR_FILENO, "lockstep: " + printable(problem.sentence) + "\n",
              "standard error");
    return kFailed;
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
KeptMemory kept_by_chunk(const ScheduleRequest& request, const Schedule& schedule) {
    return {request.kept.activations / schedule.chunks,
            request.kept.for_weights / schedule.chunks};
}

SchedulePicture picture_of(const ScheduleRequest& request, const Schedule& schedule,
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
        request.kept.activations == 1 && request.kept.for_weights == 1;
    if (!counts_chunks) picture.kept = kept_by_chunk(request, schedule);
    picture.ticks = ticks;
    return picture;
}

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
        "arrives; what takes no time is left out: {}, with {} between stages: {}.",
        path_counts(schedule, path), counted(hops, "hop", "hops"), places);
}

Block paragraph(std::string text) {
    return {Paragraph{words_of(std::move(text))}};
}

/// Returns what is known of a schedule's times, in the unit of `options`: its bubble, a
/// table of its stages, and its critical path.
Document timing_page(const Schedule& schedule, const Timing& timing,
                     const TimingJsonOptions& options) {
    Document page{{table_of(bubble_table(timing, options.ticks))},
                  {table_of(stage_table(schedule, timing, options))},
                  paragraph(critical_path_text(schedule, timing)),
                  paragraph(time_origin_text() + " " + communication_text(schedule))};
    const int copies = schedule.holders(0);
    if (copies > 1)
        page.push_back(paragraph(fmt::format(
            "Parts of the model lie on several stages here, part 0 on {}, so that a "
            "stage holds that many times its share of the model: to compare with "
            "schedules without copies, give as many times the times and the memory.",
            copies)));
    return page;
}

/// The picture must not take the schedule's place.
void require_other_file(const ScheduleRequest& request) {
    std::error_code ignored;
    require(!std::filesystem::equivalent(*request.svg, request.name, ignored),
            "--svg {}: that is the schedule's own file",
            printable(request.svg->string()));
}

}  // namespace

int run(const ScheduleRequest& request) {
    Schedule schedule = request.is_file() ? loaded(request) : generated(request);
    if (request.svg && request.is_file()) require_other_file(request);
    const Ticks ticks = ticks_of(request, schedule);
    if (const auto problem = find_problem(schedule))
        return explain(request, schedule, *problem);
    const Timing plan = timed(schedule, ticks);
    if (request.messages) schedule = with_messages(schedule, ticks.durations);
    const Timing timing = request.messages ? timed(schedule, ticks) : plan;

    const TimingJsonOptions shown{ticks.durations, ticks.per_unit,
                                  kept_by_chunk(request, schedule)};
    const Chart chart =
        schedule_chart(schedule, timing, picture_of(request, schedule, ticks.per_unit));
    if (request.svg)
        naming("--svg", *request.svg,
               [&](const auto& path) { write_text_file(path, chart_svg(chart)); });
    if (request.json) {
        print(timing_json(schedule, timing, shown));
        return kSuccess;
    }
    const int width = window_columns(STDOUT_FILENO);
    const bool colour = wants_colour(STDOUT_FILENO);
    print(chart_text(chart, {width, colour, "--svg"}) + "\n");
    Document page = timing_page(schedule, timing, shown);
    if (request.svg)
        page.push_back(paragraph(
            fmt::format("The picture is in {}.", printable(request.svg->string()))));
    print_document(page);
    print("\n");
    return kSuccess;
}

}  // namespace lockstep::lessons
