#include <algorithm>
#include <limits>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/notebook.hpp"
#include "lessons/runner/processes.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/report/version.hpp"
#include "src/text/json.hpp"

namespace lockstep::lessons {

void declare_lessons(CommandLine& line) {
    Command& command =
        line.add("lessons", "Lists the lessons, in the order of the course.");
    declare_language(command, command.asks_for<LessonsRequest>().language);
}

namespace {

/// Returns the help on --set: the settings that all lessons have, and the settings of the
/// lessons that the command line names.
std::string settings_text(const CommandLine& line) {
    std::string text = settings_help("Settings (--set KEY=VALUE)", common_settings());
    for (const LessonEntry& lesson : catalogue())
        if (line.has(lesson.slug))
            text += settings_help("Settings of " + lesson.slug, lesson.settings);
    return text;
}

/// The range of ranks that is possible for the lessons named on the command line.
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
    command.option("--step", "K", "show only this step",
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
                   "begin at the start, or at this step, instead of where you stopped",
                   [&options](const std::string& option, const std::string& value) {
                       options.from = value == "start"
                                          ? 1
                                          : whole_number(option, value, 1,
                                                         std::numeric_limits<int>::max());
                   });
    declare_language(command, options.language);
    command.option("--show", "code", "also show the code that an assignment asks for",
                   [&options](const std::string& option, const std::string& value) {
                       require(value == "code", "{} {}: only code can be shown", option,
                               value);
                       options.solutions = Solutions::shown;
                   });
    command.flag("--html", "show it in a browser", request.html);
    declare_out(command, options);
    command.flag("--json", kJsonMeaning, options.json);
    command.footer(settings_text(line));
}

namespace {

/// Returns the learner's progress in a lesson; empty if it was not begun.
std::string progress_text(const LessonEntry& lesson, Language language) {
    const Notebook notebook(notebook_file(lesson.slug));
    if (notebook.is_done()) return said(language, "Done.");
    if (!notebook.step()) return "";
    return fmt::format(fmt::runtime(said(language, "You stopped at step {}.")),
                       *notebook.step() + 1);
}

}  // namespace

void declare_hand_in(CommandLine& line) {
    Command& command =
        line.add("hand-in",
                 "Prints your predictions for a lesson and the results, as JSON. Its "
                 "\"record\" is the SHA-256 of metrics.json; anyone who runs the lesson "
                 "with these options and --out gets the same.");
    auto& request = command.asks_for<HandInRequest>();
    command.positional("SLUG", "which lesson", text_into(request.slug));
    command.suggest(lesson_slugs());
    command.option("--out", "FILE", "write it to this file", path_into(request.out));
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
