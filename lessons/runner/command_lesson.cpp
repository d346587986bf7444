#include <algorithm>
#include <limits>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/processes.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/os/environment.hpp"
#include "src/report/files.hpp"
#include "src/report/version.hpp"
#include "src/report/write_diagnosis.hpp"
#include "src/text/json.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

void declare_lessons(CommandLine& line) {
    Command& command =
        line.add("lessons", "Lists the lessons, in the order of the course.");
    declare_language(command, command.asks_for<LessonsRequest>().language);
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
                                "Runs a lesson. On a terminal it shows as much as fits, "
                                "then waits for a key; in a pipe it runs through.");
    auto& request = command.asks_for<LessonRequest>();
    LessonOptions& options = request.options;
    request.words = line.words();
    command.positional("SLUG", "which lesson", text_into(request.slug));
    command.suggest(lesson_slugs());
    declare_backend(command, options);
    declare_lesson_options(command, options, line);
    command.option("--from", "start|K",
                   "begin at the start, or at this step, instead of "
                   "where you left it",
                   [&options](const std::string& option, const std::string& value) {
                       options.from = value == "start"
                                          ? 1
                                          : whole_number(option, value, 1,
                                                         std::numeric_limits<int>::max());
                   });
    declare_language(command, options.language);
    command.option("--show", "code", "quote the code that an assignment asks for, too",
                   [&options](const std::string& option, const std::string& value) {
                       require(value == "code", "{} {}: what can be shown is code",
                               option, value);
                       options.solutions = Solutions::shown;
                   });
    command.flag("--html", "show it in a browser", request.html);
    declare_out(command, options);
    command.flag("--json", kJsonMeaning, options.json);
    command.footer(settings_text(line));
}

namespace {

/// Says how far one is in a lesson; nothing if one has not begun it.
std::string progress_text(const LessonEntry& lesson, Language language) {
    const Notebook notebook(notebook_file(lesson.slug));
    if (notebook.is_done()) return said(language, "Done.");
    if (!notebook.step()) return "";
    return fmt::format(fmt::runtime(said(language, "You left it at step {}.")),
                       *notebook.step() + 1);
}

}  // namespace

void declare_hand_in(CommandLine& line) {
    Command& command =
        line.add("hand-in",
                 "Prints what you predicted in a lesson and what came out, as JSON. Its "
                 "\"record\" is the SHA-256 of metrics.json, which anybody gets who runs "
                 "the lesson with these options and --out.");
    auto& request = command.asks_for<HandInRequest>();
    command.positional("SLUG", "which lesson", text_into(request.slug));
    command.suggest(lesson_slugs());
    command.option("--out", "FILE", "write it there", path_into(request.out));
}

int run(const LessonsRequest& request) {
    const Language language = language_of(request.language);
    std::string text;
    for (const LessonEntry& lesson : catalogue()) {
        const LessonPage page = page_of(lesson, language);
        text +=
            listed(lesson.slug, {page.title(), page.question(),
                                 joined(language, {facts_text(page, page.fact("after"),
                                                              page.fact("assignment")),
                                                   progress_text(lesson, language)})});
    }
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
                  {"title", page_of(lesson, Language::english).title()},
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

/// Returns what is to be said of checks, and where the record is.
Document account_of(const Record& record, const LessonOptions& options) {
    std::string failed;
    std::size_t failures = 0;
    for (const Check& check : record.checks) {
        if (check.passed) continue;
        failed += (failures++ > 0 ? ", " : "") + check.name;
    }
    const std::size_t checks = record.checks.size();
    Document account;
    const auto say = [&](const char* sentence, const auto&... values) {
        account.push_back({Paragraph{words_of(fmt::format(
            fmt::runtime(said(language_of(options.language), sentence)), values...))}});
    };
    if (failures > 0)
        say("{} of {} checks failed: {}.", failures, checks, failed);
    else if (checks > 0)
        say(checks == 1                    ? "The check passed."
            : options.step.value_or(1) > 1 ? "All {} checks passed, with those of the "
                                             "steps before."
                                           : "All {} checks passed.",
            checks);
    if (options.out)
        say("The record of this run is in {}.", printable(options.out->string()));
    return account;
}

/// Returns how the predictions went, if any were asked.
std::string score_text(const Score& score, Language language) {
    if (score.asked() == 0) return "";
    return fmt::format(
        fmt::runtime(said(language,
                          "Predictions: {} of {} right at once, {} at the second try, {} "
                          "wrong, {} passed.")),
        score.right, score.asked(), score.right_later, score.wrong, score.passed);
}

void run_silently(const LessonEntry& lesson, const LessonOptions& options,
                  const std::vector<Step>& steps, Record& record) {
    std::vector<std::size_t> checks_after;
    const auto wanted =
        static_cast<std::size_t>(options.step.value_or(static_cast<int>(steps.size())));
    try {
        for (std::size_t index = 0; index < wanted; ++index) {
            steps[index].run();
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

/// Returns the assignment that goes with a lesson, and the next lesson.
Document what_comes_next(const LessonEntry& lesson, Language language) {
    Document next{{Heading{2, words_of(said(language, "What comes next"))}}};
    const auto say = [&](const char* sentence, const auto&... values) {
        next.push_back({Paragraph{
            words_of(fmt::format(fmt::runtime(said(language, sentence)), values...))}});
    };
    const std::string assignment = page_of(lesson, language).fact("assignment");
    if (!assignment.empty() && assignment != "none")
        say("The assignment {0} goes with this lesson: lockstep assignment new {0} DIR",
            assignment);
    const auto here = std::ranges::find(catalogue(), lesson.slug, &LessonEntry::slug);
    if (here == catalogue().end() || here + 1 == catalogue().end())
        say("This was the last lesson. lockstep lessons lists them all.");
    else
        say("The next lesson is {0}: lockstep lesson {1}",
            page_of(*(here + 1), language).title(), (here + 1)->slug);
    return next;
}

/// What a lesson shows behind its last step. Its record is left before.
Step end_of(const LessonEntry& lesson, const LessonOptions& options,
            const LessonSteps& made, Record& record, Notebook& notebook) {
    return {"", [&lesson, &options, &made, &record, &notebook] {
                const Language language = language_of(options.language);
                leave_record(options, record);
                Document end = account_of(record, options);
                notebook.finish(metrics_json(record));
                const std::string score = score_text(notebook.score(), language);
                if (!score.empty()) end.push_back({Paragraph{words_of(score)}});
                for (Block& block : made.end())
                    end.push_back(std::move(block));
                for (Block& block : what_comes_next(lesson, language))
                    end.push_back(std::move(block));
                return end;
            }};
}

void say_where_it_goes_on(const LessonEntry& lesson, const LessonOptions& options,
                          std::size_t step, std::size_t steps) {
    const Language language = language_of(options.language);
    const auto say = [&](const char* sentence, const auto&... values) {
        print_document({{Paragraph{
            words_of(fmt::format(fmt::runtime(said(language, sentence)), values...))}}});
    };
    say("You left at step {} of {}. lockstep lesson {} goes on there; --from start "
        "begins anew.",
        step, steps, lesson.slug);
    if (options.out)
        say("The record of what was done is in {}.", printable(options.out->string()));
}

void run_visibly(const LessonEntry& lesson, const LessonOptions& options,
                 LessonSteps& made, Record& record) {
    const Language language = language_of(options.language);
    const TextLook look{window_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO),
                        language};
    const bool waits = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
    Notebook notebook =
        waits ? Notebook(notebook_file(lesson.slug), notebook_key(record.options))
              : Notebook();
    std::vector<Step> steps = made.steps();
    const std::size_t count = steps.size();
    steps.push_back(end_of(lesson, options, made, record, notebook));
    const std::size_t steps_shown = steps.size();

    std::size_t first = 0;
    if (options.step)
        first = static_cast<std::size_t>(*options.step) - 1;
    else if (options.from)
        first = static_cast<std::size_t>(*options.from) - 1;
    else if (notebook.step() && *notebook.step() < count)
        first = *notebook.step();
    Document opening;
    if (first == 0) {
        opening.push_back({Heading{1, words_of(page_of(lesson, language).title())}});
        opening.push_back({Paragraph{words_of(page_of(lesson, language).question())}});
    } else if (!options.step && !options.from) {
        opening.push_back({Paragraph{words_of(fmt::format(
            fmt::runtime(said(language,
                              "{} goes on where you left it; --from start begins anew.")),
            page_of(lesson, language).title()))}});
    }

    Reader reader(std::move(steps), look, waits, notebook);
    std::optional<std::size_t> left;
    try {
        left =
            reader.run(std::move(opening), first, options.step ? first + 1 : steps_shown);
    } catch (const FaultError& fault) {
        leave_stopped_record(options, record, fault);
        throw;
    }
    if (options.step || left) leave_record(options, record);
    if (options.step)
        for (const std::string& line : lines_of(account_of(record, options), look))
            print(line + "\n");
    else if (left && *left < count)
        say_where_it_goes_on(lesson, options, *left + 1, count);
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
    LessonSteps steps(lesson, *made, language_of(options.language), record,
                      options.solutions);
    const auto last = static_cast<int>(steps.steps().size());
    for (const auto& [name, step] :
         {std::pair{"--step", options.step}, std::pair{"--from", options.from}})
        require(!step || *step <= last, "{} {}: the lesson {} has {} steps", name,
                step.value_or(0), lesson.slug, last);
    if (!direction(steps.steps())) return kSuccess;
    if (options.json)
        run_silently(lesson, options, steps.steps(), record);
    else
        run_visibly(lesson, options, steps, record);
    return all_passed(record) ? kSuccess : kFailed;
}

int run(const HandInRequest& request) {
    const LessonEntry& lesson = find_lesson(request.slug);
    const Notebook notebook(notebook_file(lesson.slug));
    require(
        !notebook.notes().empty(),
        "there is nothing to hand in: the lesson {} has not been run on a terminal here",
        lesson.slug);
    Json runs = Json::object();
    for (const auto& [options, notes] : notebook.notes())
        runs[options] = json_of(notes);
    const Json all{
        {"lesson", lesson.slug}, {"version", kVersion}, {"runs", std::move(runs)}};
    const std::string text = all.dump(1) + "\n";
    if (request.out)
        naming("--out", *request.out,
               [&](const auto& file) { write_text_file(file, text); });
    else
        print(text);
    return kSuccess;
}

int run(const LessonRequest& request) {
    const LessonEntry& lesson = find_lesson(request.slug);
    const LessonOptions asked = understood(request.options, lesson);
    const std::optional<gpu::Placement> placement = placement_for(asked);
    const LessonOptions options = resolved(asked, lesson.default_ranks, placement);
    say_backend("lockstep", asked, options, placement);
    if (request.html) return show_in_browser(lesson, options);
    if (options.backend == "nccl")
        return run_on_processes(lesson, options, placement, request.words);
    return run_steps(lesson, options, [](auto&) { return true; });
}

}  // namespace lockstep::lessons
