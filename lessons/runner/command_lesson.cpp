#include <algorithm>
#include <limits>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/supervise.hpp"
#include "gpu/survey.hpp"
#include "lessons/runner/backend.hpp"
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

/// Takes KEY=VALUE; whether there is such a setting is asked when the lesson is known.
Take setting_into(std::map<std::string, std::string>& settings) {
    return [&settings](const std::string& option, const std::string& value) {
        const std::size_t sign = value.find('=');
        require(sign != std::string::npos && sign > 0, "{} {}: KEY=VALUE is expected",
                option, printable(value));
        const bool fresh =
            settings.emplace(value.substr(0, sign), value.substr(sign + 1)).second;
        require(fresh, "{} {}: this setting is given twice", option, printable(value));
    };
}

/// Returns what help says of --set: the settings of every lesson, and those of a lesson
/// that is named.
std::string settings_text(const CommandLine& line) {
    std::string text = "\nSettings (--set KEY=VALUE):\n";
    for (const Setting& setting : common_settings())
        text += entry_text(setting.key, setting.help());
    for (const LessonEntry& lesson : catalogue()) {
        if (!line.has(lesson.slug) || lesson.settings.empty()) continue;
        text += fmt::format("\nSettings of {}:\n", lesson.slug);
        for (const Setting& setting : lesson.settings)
            text += entry_text(setting.key, setting.help());
    }
    return text;
}

}  // namespace

namespace {

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
    constexpr std::uint64_t kMostSeed = std::numeric_limits<std::uint64_t>::max();
    command.option("--step", "K", "show this step alone",
                   whole_into(options.step, 1, kMost));
    const RanksRange ranks = ranks_range(line);
    command.option("--ranks", "N",
                   fmt::format("number of devices, {} to {}", ranks.least, ranks.most),
                   whole_into(options.ranks, ranks.least, ranks.most));
    command.option(
        "--dtype", "f32|f64|bf16", "numbers of 32 (default), 64 or 16 bits",
        choice_into(options.dtype,
                    {{"f32", DType::f32}, {"f64", DType::f64}, {"bf16", DType::bf16}}));
    command.option("--seed", "S", "of all random numbers; default 1",
                   whole_into(options.seed, std::uint64_t{0}, kMostSeed));
    command.option("--cluster", "NAME|FILE",
                   "what devices and links can do: " + either(cluster_preset_names()) +
                       ", or a JSON file; default classroom",
                   text_into(options.cluster));
    command.option("--text", "FILE", "UTF-8 text to train on", path_into(options.text));
    command.option("--data", "FILE", "CSV of numbers to train on",
                   path_into(options.data));
    using Level = sim::CheckLevel;
    command.option(
        "--check", "cheap|full",
        "which mistakes are looked for: those that cost nothing to find (default), or "
        "all, in at most twice the time; full needs virtual devices",
        choice_into(options.check, {{"cheap", Level::cheap}, {"full", Level::full}}));
    command.repeated("--set", "KEY=VALUE",
                     "a setting, see `lockstep lesson SLUG --help`; may be repeated",
                     setting_into(options.settings));
}

void declare_lesson(CommandLine& line) {
    Command& command = line.add("lesson",
                                "Runs a lesson. On a terminal it waits after each step; "
                                "in a pipe it runs through.");
    auto& request = command.asks_for<LessonRequest>();
    LessonOptions& options = request.options;
    request.words = line.words();
    command.positional("SLUG", "which lesson", text_into(request.slug));
    command.option(
        "--backend", "NAME", "sim (default), cuda, nccl or gpu",
        choice_into(
            options.backend,
            {{"sim", "sim"}, {"cuda", "cuda"}, {"nccl", "nccl"}, {"gpu", "gpu"}}));
    declare_lesson_options(command, options, line);
    command.option("--out", "DIR", "leave a record of the run there",
                   path_into(options.out));
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

/// Returns every setting with the value that it has in this run, and what else decides
/// the numbers.
std::map<std::string, std::string> settings_in_force(const LessonEntry& lesson,
                                                     const LessonOptions& options) {
    std::map<std::string, std::string> settings = options.settings;
    for (const auto* known : {&common_settings(), &lesson.settings})
        for (const Setting& setting : *known)
            if (setting.recorded && !setting.standard_text().empty())
                settings.emplace(setting.key, setting.standard_text());
    if (options.text) settings["--text"] = printable(options.text->string());
    if (options.data) settings["--data"] = printable(options.data->string());
    if (options.step) settings["--step"] = std::to_string(*options.step);
    return settings;
}

RunOptions run_options(const LessonEntry& lesson, const LessonOptions& options) {
    RunOptions run;
    run.lesson = lesson.slug;
    run.backend = options.backend;
    run.ranks = options.ranks.value_or(lesson.default_ranks);
    run.dtype = options.dtype;
    run.seed = options.seed;
    run.cluster = options.cluster;
    run.check = options.check_level() == sim::CheckLevel::full ? "full" : "cheap";
    run.settings = settings_in_force(lesson, options);
    if (options.backend == "sim") return run;
    const gpu::Survey here = gpu::survey();
    if (here.gpus.empty()) return run;
    run.gpu = {{"name", here.gpus.front().name},
               {"driver", here.driver},
               {"cuda", here.cuda},
               {"nccl", here.nccl}};
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
    record.options = run_options(lesson, options);
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
    const bool may_be_placed = asked.backend == "nccl" || asked.backend == "gpu";
    if (may_be_placed) gpu::set_environment();
    const std::optional<gpu::Placement> placement =
        may_be_placed ? gpu::find_placement(gpu::process_environment()) : std::nullopt;
    const LessonOptions options = resolved(asked, lesson.default_ranks, placement);
    // One process says it: the one that starts the others, or rank 0 if another did.
    const bool speaks =
        !placement || (placement->rank == 0 && placement->launcher != "lockstep");
    if (asked.backend == "gpu" && speaks)
        write_all(STDERR_FILENO,
                  fmt::format("lockstep: --backend gpu is {} here\n", options.backend),
                  "standard error");
    if (options.backend == "nccl")
        return run_on_processes(lesson, options, placement, request.words);
    return run_steps(lesson, options, [](auto&, auto&) { return true; });
}

}  // namespace lockstep::lessons
