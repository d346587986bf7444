#include "lessons/runner/lesson_run.hpp"

#include <algorithm>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/command_line.hpp"
#include "lessons/runner/reader.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/report/write_diagnosis.hpp"
#include "src/text/json.hpp"
#include "src/text/table.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

/// Returns the options for run.json: everything that decides the numbers.
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

/// Returns the results of the predictions, if any were asked.
std::string score_text(const Score& score, Language language) {
    if (score.asked() == 0) return "";
    return fmt::format(fmt::runtime(said(language,
                                         "Predictions: {} of {} right at once, {} at the "
                                         "second try, {} wrong, {} skipped.")),
                       score.right, score.asked(), score.right_later, score.wrong,
                       score.passed);
}

/// A lesson, with everything that is needed to run it.
struct LessonRun {
    const LessonEntry& lesson;
    const LessonOptions& options;
    Language language;
    Record& record;
    LessonSteps& made;

    void run_silently();
    void run_visibly();

  private:
    /// Adds a sentence, in the reader's language, as a paragraph.
    void say(Document& document, const char* sentence, const auto&... values) const {
        document.push_back({Paragraph{
            words_of(fmt::format(fmt::runtime(said(language, sentence)), values...))}});
    }
    std::string json(const std::vector<std::size_t>& checks_after) const;
    void leave_record() const;
    void leave_stopped_record(const FaultError& fault);
    Document account() const;
    Document roofs() const;
    Document what_comes_next() const;
    Step end(Notebook& notebook);
    std::size_t first_step(const Notebook& notebook) const;
    Document opening(std::size_t first) const;
    void say_where_it_goes_on(std::size_t step) const;
};

/// Returns one JSON document: the lesson's options, its steps with the checks of each,
/// metrics.json, and the diagnosis if a mistake ended the run. In that case the steps are
/// those before the mistake. `checks_after` has the number of checks after each step.
std::string LessonRun::json(const std::vector<std::size_t>& checks_after) const {
    const Json metrics = Json::parse(metrics_json(record));
    Json steps_run = Json::array();
    const Json::Array& all_checks = metrics.at("checks").elements();
    for (std::size_t index = 0, done = 0; index < checks_after.size(); ++index) {
        Json checks = Json::array();
        for (; done < checks_after[index]; ++done)
            checks.push_back(all_checks[done]);
        steps_run.push_back({{"number", index + 1},
                             {"title", made.steps()[index].title},
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

void LessonRun::leave_record() const {
    if (!options.out) return;
    naming("--out", *options.out,
           [&](const auto& folder) { write_record(folder, record); });
}

/// Writes what was recorded before a mistake ended the run. A failure to write the record
/// must not hide the mistake.
void LessonRun::leave_stopped_record(const FaultError& fault) {
    record.stopped_by(fault);
    if (!options.out) return;
    try {
        leave_record();
        if (options.json) return;
        write_all(
            STDERR_FILENO,
            fmt::format("lockstep: the partial record of the stopped run is in {}\n",
                        printable(options.out->string())),
            "standard error");
    } catch (const std::exception& error) {
        write_all(STDERR_FILENO,
                  fmt::format("lockstep: the stopped run could not be recorded: {}\n",
                              printable(error.what())),
                  "standard error");
    }
}

/// Returns the summary of the checks, and where the record is.
Document LessonRun::account() const {
    std::string failed;
    std::size_t failures = 0;
    for (const Check& check : record.checks) {
        if (check.passed) continue;
        failed += (failures++ > 0 ? ", " : "") + check.name;
    }
    const std::size_t checks = record.checks.size();
    Document account;
    if (failures > 0)
        say(account, "{} of {} checks failed: {}.", failures, checks, failed);
    else if (checks > 0)
        say(account,
            checks == 1 ? "The check passed."
            : options.step.value_or(1) > 1
                ? "All {} checks passed, including those of earlier steps."
                : "All {} checks passed.",
            checks);
    if (options.out)
        say(account, "The record of this run is in {}.",
            printable(options.out->string()));
    return account;
}

/// Returns how far each recorded run was from the least time of its work.
Document LessonRun::roofs() const {
    Table table;
    for (const char* head : {"run", "took", "products", "memory", "links", "× its roof"})
        table.head.push_back(said(language, head));
    for (const auto& [name, report] : record.runs) {
        const Roof& roof = report.roof;
        if (roof.highest() == 0) continue;
        const auto title = record.titles.find(name);
        table.rows.push_back(
            {title == record.titles.end() ? name : title->second,
             time_text(report.makespan()), time_text(roof.products),
             time_text(roof.memory), time_text(roof.links),
             fmt::format("{:.2f}", static_cast<double>(report.makespan()) /
                                       static_cast<double>(roof.highest()))});
    }
    Document document;
    if (table.rows.empty()) return document;
    say(document,
        "How far each run was from its roof: the time that its products, its bytes of "
        "memory or its messages take on the busiest device if nothing waits and the data "
        "sheet's rates are reached; launches and latencies are not in it. The longest of "
        "the three binds.");
    document.push_back({table_of(table)});
    return document;
}

void LessonRun::run_silently() {
    const std::vector<Step>& steps = made.steps();
    std::vector<std::size_t> checks_after;
    const auto wanted =
        static_cast<std::size_t>(options.step.value_or(static_cast<int>(steps.size())));
    try {
        for (std::size_t index = 0; index < wanted; ++index) {
            steps[index].run();
            checks_after.push_back(record.checks.size());
        }
    } catch (const FaultError& fault) {
        leave_stopped_record(fault);
        print(json(checks_after));
        throw;
    }
    leave_record();
    print(json(checks_after));
}

/// Returns the text that names this lesson's assignment and the next lesson.
Document LessonRun::what_comes_next() const {
    Document next{{Heading{2, words_of(said(language, "What comes next"))}}};
    const std::string assignment = page_of(lesson, language).fact("assignment");
    if (!assignment.empty() && assignment != "none")
        say(next,
            "The assignment {0} goes with this lesson: lockstep assignment new {0} DIR",
            assignment);
    const auto here = std::ranges::find(catalogue(), lesson.slug, &LessonEntry::slug);
    if (here == catalogue().end() || here + 1 == catalogue().end())
        say(next, "This was the last lesson. lockstep lessons lists them all.");
    else
        say(next, "The next lesson is {0}: lockstep lesson {1}",
            page_of(*(here + 1), language).title(), (here + 1)->slug);
    return next;
}

/// Returns what a lesson shows after its last step; the record is written first.
Step LessonRun::end(Notebook& notebook) {
    return {"", [this, &notebook] {
                leave_record();
                Document end = account();
                notebook.finish(metrics_json(record));
                const std::string score = score_text(notebook.score(), language);
                if (!score.empty()) end.push_back({Paragraph{words_of(score)}});
                for (Block& block : roofs())
                    end.push_back(std::move(block));
                for (Block& block : made.end())
                    end.push_back(std::move(block));
                for (Block& block : what_comes_next())
                    end.push_back(std::move(block));
                return end;
            }};
}

/// Returns the step to begin at, from 0: the chosen step, or where the reader stopped.
std::size_t LessonRun::first_step(const Notebook& notebook) const {
    if (options.step) return static_cast<std::size_t>(*options.step) - 1;
    if (options.from) return static_cast<std::size_t>(*options.from) - 1;
    if (notebook.step() && *notebook.step() < made.steps().size())
        return *notebook.step();
    return 0;
}

/// Returns the text before the first step that is shown.
Document LessonRun::opening(std::size_t first) const {
    const LessonPage page = page_of(lesson, language);
    Document opening;
    if (const ClusterSpec spec = load_cluster(options.cluster);
        spec.error && options.has_virtual_time())
        say(opening,
            "Times of {} were fitted to measurements; they are {:.0f} % off in the mean.",
            printable(spec.name), 100 * spec.error->mean);
    if (first == 0) {
        opening.insert(opening.begin(), {{Heading{1, words_of(page.title())}},
                                         {Paragraph{words_of(page.question())}}});
        return opening;
    }
    if (!options.step && !options.from)
        say(opening, "{} continues where you stopped; --from start begins again.",
            page.title());
    return opening;
}

void LessonRun::say_where_it_goes_on(std::size_t step) const {
    Document text;
    say(text,
        "You stopped at step {} of {}. lockstep lesson {} continues there; --from start "
        "begins again.",
        step, made.steps().size(), lesson.slug);
    if (options.out)
        say(text, "The record of what was done is in {}.",
            printable(options.out->string()));
    print_document(text);
}

void LessonRun::run_visibly() {
    const TextLook look{window_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO),
                        language};
    const bool waits = ::isatty(STDIN_FILENO) == 1 && ::isatty(STDOUT_FILENO) == 1;
    Notebook notebook =
        waits ? Notebook(notebook_file(lesson.slug), notebook_key(record.options))
              : Notebook();
    std::vector<Step> steps = made.steps();
    steps.push_back(end(notebook));
    const std::size_t first = first_step(notebook);
    const std::size_t last = options.step ? first + 1 : steps.size();

    Reader reader(std::move(steps), look, waits, notebook);
    std::optional<std::size_t> left;
    try {
        left = reader.run(opening(first), first, last);
    } catch (const FaultError& fault) {
        leave_stopped_record(fault);
        throw;
    }
    if (options.step || left) leave_record();
    if (options.step)
        for (const std::string& line : lines_of(account(), look))
            print(line + "\n");
    else if (left && *left < made.steps().size())
        say_where_it_goes_on(*left + 1);
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

    const Language language = language_of(options.language);
    const std::unique_ptr<Lesson> experiments = lesson.make(options, record);
    LessonSteps steps(lesson, *experiments, language, record, options.solutions);
    const auto last = static_cast<int>(steps.steps().size());
    for (const auto& [name, step] :
         {std::pair{"--step", options.step}, std::pair{"--from", options.from}})
        require(!step || *step <= last, "{} {}: the lesson {} has {} steps", name,
                step.value_or(0), lesson.slug, last);
    if (!direction(steps.steps())) return kSuccess;
    LessonRun run{lesson, options, language, record, steps};
    if (options.json)
        run.run_silently();
    else
        run.run_visibly();
    return all_passed(record) ? kSuccess : kFailed;
}

}  // namespace lockstep::lessons
