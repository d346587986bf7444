#include <algorithm>
#include <limits>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/processes.hpp"
#include "lessons/runner/stepper.hpp"
#include "src/core/require.hpp"
#include "src/report/write_diagnosis.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

void declare_lessons(CommandLine& line) {
    line.add("lessons", "Lists the lessons, in the order of the course.")
        .asks_for<LessonsRequest>();
}

namespace {

/// Returns what help says of --set: the settings of every lesson, and those of a lesson
/// that is named.
std::string settings_text(const CommandLine& line) {
    std::string text = settings_help("Settings (--set KEY=VALUE)", common_settings());
    for (const LessonEntry& lesson : catalogue())
        if (line.has(lesson.slug))
            text += settings_help("Settings of " + lesson.slug, lesson.settings);
    return text;
}

/// Ranks that a lesson can have, of those among the words.
struct RanksRange {
    int least = 1;
    int most = sim::ClusterOptions::kMaxRanks;
};

RanksRange ranks_range(const CommandLine& line) {
    RanksRange range;
    bool named = false;
    for (const LessonEntry& lesson : catalogue()) {
        if (!line.has(lesson.slug)) continue;
        range = {named ? std::min(range.least, lesson.least_ranks) : lesson.least_ranks,
                 named ? std::max(range.most, lesson.most_ranks) : lesson.most_ranks};
        named = true;
    }
    return range;
}

}  // namespace

void declare_lesson_options(Command& command, LessonOptions& options,
                            const CommandLine& line) {
    constexpr int kMost = std::numeric_limits<int>::max();
    command.option("--step", "K", "show this step alone",
                   whole_into(options.step, 1, kMost));
    const RanksRange ranks = ranks_range(line);
    declare_world(command, options, ranks.least, ranks.most);
    command.option("--text", "FILE", "UTF-8 text to train on", path_into(options.text));
    command.option("--data", "FILE", "CSV of numbers to train on",
                   path_into(options.data));
    declare_check(command, options);
    declare_settings(command, options, "`lockstep lesson SLUG --help`");
}

void declare_lesson(CommandLine& line) {
    Command& command = line.add("lesson",
                                "Runs a lesson. On a terminal it waits after each step; "
                                "in a pipe it runs through.");
    auto& request = command.asks_for<LessonRequest>();
    LessonOptions& options = request.options;
    request.words = line.words();
    command.positional("SLUG", "which lesson", text_into(request.slug));
    command.suggest(lesson_slugs());
    declare_backend(command, options);
    declare_lesson_options(command, options, line);
    declare_out(command, options);
    command.flag("--json", kJsonMeaning, options.json);
    command.footer(settings_text(line));
}

int run(const LessonsRequest&) {
    std::string text;
    for (const LessonEntry& lesson : catalogue())
        text += listed(lesson.slug, {lesson.title, lesson.question});
    print(text);
    return kSuccess;
}

namespace {

/// Returns what run.json says of the run, with what else decides the numbers.
RunOptions recorded_options(const LessonEntry& lesson, const LessonOptions& options) {
    RunOptions run =
        run_options(lesson.slug, options, lesson.default_ranks, lesson.settings);
    if (options.text) run.settings["--text"] = printable(options.text->string());
    if (options.data) run.settings["--data"] = printable(options.data->string());
    if (options.step) run.settings["--step"] = std::to_string(*options.step);
    return run;
}

bool all_passed(const Record& record) {
    return std::all_of(record.checks.begin(), record.checks.end(),
                       [](const Check& check) { return check.passed; });
}

Json options_json(const LessonOptions& options, const RunOptions& run) {
    Json json{{"backend", run.backend},
              {"ranks", run.ranks},
              {"dtype", std::string(name_of(run.dtype))},
              {"seed", run.seed},
              {"cluster", run.cluster},
              {"check", run.check},
              {"settings", Json::object()}};
    for (const auto& [key, value] : run.settings)
        json["settings"][key] = value;
    if (options.step) json["step"] = *options.step;
    if (options.text) json["text"] = options.text->string();
    if (options.data) json["data"] = options.data->string();
    return json;
}

/// Returns what a lesson has run, as one JSON document: what it was asked for, its steps
/// with the checks of each, metrics.json, and the diagnosis if a mistake ended it; the
/// steps are then those before. `checks_after` counts the checks after each step.
std::string lesson_json(const LessonEntry& lesson, const LessonOptions& options,
                        const std::vector<Step>& steps,
                        const std::vector<std::size_t>& checks_after,
                        const Record& record) {
    const Json metrics = Json::parse(metrics_json(record));
    Json steps_run = Json::array();
    const Json::Array& all_checks = metrics.at("checks").elements();
    for (std::size_t index = 0, done = 0; index < checks_after.size(); ++index) {
        Json checks = Json::array();
        for (; done < checks_after[index]; ++done)
            checks.push_back(all_checks[done]);
        steps_run.push_back({{"number", index + 1},
                             {"title", steps[index].title},
                             {"checks", std::move(checks)}});
    }
    Json document{{"lesson", lesson.slug},
                  {"title", lesson.title},
                  {"options", options_json(options, record.options)},
                  {"passed", all_passed(record)},
                  {"steps", std::move(steps_run)},
                  {"metrics", metrics}};
    if (record.diagnosis) {
        document["passed"] = false;
        document["diagnosis"] = Json::parse(diagnosis_json(*record.diagnosis));
    }
    if (options.out) document["record"] = options.out->string();
    return document.dump(2) + "\n";
}

PageStyle page_style() {
    return {window_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO),
            ::isatty(STDOUT_FILENO) == 1};
}

void leave_record(const LessonOptions& options, const Record& record) {
    if (!options.out) return;
    naming("--out", *options.out,
           [&](const auto& folder) { write_record(folder, record); });
}

/// A run that ended with a mistake leaves what it has, which must not hide the mistake.
void leave_stopped_record(const LessonOptions& options, Record& record,
                          const FaultError& fault) {
    record.stopped_by(fault);
    if (!options.out) return;
    try {
        leave_record(options, record);
        if (options.json) return;
        write_all(
            STDERR_FILENO,
            fmt::format("lockstep: what the run had left when it stopped is in {}\n",
                        printable(options.out->string())),
            "standard error");
    } catch (const std::exception& error) {
        write_all(STDERR_FILENO,
                  fmt::format("lockstep: the stopped run could not be recorded: {}\n",
                              printable(error.what())),
                  "standard error");
    }
}

/// Says what is left to say when the steps have been run.
void print_summary(Record& record, const LessonOptions& options) {
    TextPage page(page_style(), record, print);
    std::string failed;
    std::size_t failures = 0;
    for (const Check& check : record.checks) {
        if (check.passed) continue;
        failed += (failures++ > 0 ? ", " : ": ") + check.name;
    }
    const std::size_t checks = record.checks.size();
    if (failures > 0)
        page.text(fmt::format("{} of {} checks failed{}.", failures, checks, failed));
    else if (checks > 0)
        page.text(checks == 1 ? "The check passed."
                              : fmt::format("All {} checks passed.", checks));
    if (options.out)
        page.text(fmt::format("The record of this run is in {}.",
                              printable(options.out->string())));
}

void run_silently(const LessonEntry& lesson, const LessonOptions& options,
                  const std::vector<Step>& steps, Record& record) {
    SilentPage page(record);
    std::vector<std::size_t> checks_after;
    const auto wanted =
        static_cast<std::size_t>(options.step.value_or(static_cast<int>(steps.size())));
    try {
        for (std::size_t index = 0; index < wanted; ++index) {
            steps[index].run(page);
            checks_after.push_back(record.checks.size());
        }
    } catch (const FaultError& fault) {
        leave_stopped_record(options, record, fault);
        print(lesson_json(lesson, options, steps, checks_after, record));
        throw;
    }
    leave_record(options, record);
    print(lesson_json(lesson, options, steps, checks_after, record));
}

void run_visibly(const LessonEntry& lesson, const LessonOptions& options,
                 std::vector<Step> steps, Record& record) {
    TextPage opening(page_style(), record, print);
    opening.heading(lesson.title);
    opening.text(lesson.question);

    const bool waits = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
    Stepper stepper(std::move(steps), page_style(), waits, record);
    bool complete = true;
    try {
        if (options.step)
            stepper.run_only(*options.step);
        else
            complete = stepper.run();
    } catch (const FaultError& fault) {
        leave_stopped_record(options, record, fault);
        throw;
    }
    if (!complete) {
        if (options.out)
            print("The lesson was left before its end: no record was written.\n");
        return;
    }
    leave_record(options, record);
    print_summary(record, options);
}

}  // namespace

int run_steps(const LessonEntry& lesson, const LessonOptions& options,
              const Direction& direction) {
    Record record;
    record.options = recorded_options(lesson, options);
    record.hta = options.run.hta_traces;
    require_ranks(lesson, options);
    cluster_options(options, record.options.ranks, false);
    if (options.out) naming("--out", *options.out, require_record_folder);

    const std::unique_ptr<Lesson> made = lesson.make(options, record);
    std::vector<Step> steps = made->steps();
    const auto last = static_cast<int>(steps.size());
    require(!options.step || *options.step <= last, [&] {
        return fmt::format("--step {}: the lesson {} has {} steps", *options.step,
                           lesson.slug, last);
    });
    if (!direction(steps, record)) return kSuccess;
    if (options.json)
        run_silently(lesson, options, steps, record);
    else
        run_visibly(lesson, options, std::move(steps), record);
    return all_passed(record) ? kSuccess : kFailed;
}

int run(const LessonRequest& request) {
    const LessonEntry& lesson = find_lesson(request.slug);
    const LessonOptions asked = understood(request.options, lesson);
    const std::optional<gpu::Placement> placement = placement_for(asked);
    const LessonOptions options = resolved(asked, lesson.default_ranks, placement);
    say_backend("lockstep", asked, options, placement);
    if (options.backend == "nccl")
        return run_on_processes(lesson, options, placement, request.words);
    return run_steps(lesson, options, [](auto&, auto&) { return true; });
}

}  // namespace lockstep::lessons
