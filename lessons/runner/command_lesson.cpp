#include <algorithm>
#include <cerrno>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/environment.hpp"
#include "gpu/survey.hpp"
#include "lessons/runner/backend.hpp"
#include "lessons/runner/command.hpp"
#include "lessons/runner/page.hpp"
#include "lessons/runner/processes.hpp"
#include "lessons/runner/settings.hpp"
#include "lessons/runner/stepper.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

/// Every setting with the value that it has in this run, and what else decides the
/// numbers.
std::map<std::string, std::string> settings_in_force(const LessonEntry& lesson,
                                                     const LessonOptions& options) {
    std::map<std::string, std::string> settings = options.settings;
    for (const auto* known : {&common_settings(), &lesson.settings})
        for (const Setting& setting : *known)
            if (!setting.standard.empty())
                settings.emplace(setting.key, setting.standard);
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

PageStyle page_style() {
    return {window_columns(STDOUT_FILENO), wants_colour(STDOUT_FILENO),
            ::isatty(STDOUT_FILENO) == 1};
}

/// What is wrong with the folder is said of the option that named it.
template <typename Action>
void naming_out(const std::filesystem::path& folder, Action&& action) {
    try {
        action(folder);
    } catch (const UsageError& error) {
        throw UsageError(std::string("--out ") + error.what());
    } catch (const std::system_error& error) {
        throw std::system_error(error.code(), "--out " + printable(folder.string()));
    }
}

/// Asked before the run: whether a record could be left there at its end.
void require_place(const std::filesystem::path& folder) {
    require_record_folder(folder);
    std::filesystem::path existing = std::filesystem::absolute(folder).lexically_normal();
    while (!std::filesystem::exists(existing))
        existing = existing.parent_path();
    if (!std::filesystem::is_directory(existing))
        throw std::system_error(std::make_error_code(std::errc::not_a_directory));
    if (::access(existing.c_str(), W_OK | X_OK) != 0)
        throw std::system_error(errno, std::generic_category());
}

void leave_record(const LessonOptions& options, const Record& record) {
    if (!options.out) return;
    naming_out(*options.out, [&](const auto& folder) { write_record(folder, record); });
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

/// What is left to say when the steps have been run.
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

bool all_passed(const Record& record) {
    return std::all_of(record.checks.begin(), record.checks.end(),
                       [](const Check& check) { return check.passed; });
}

int run_steps(const LessonEntry& lesson, const LessonOptions& options,
              const Direction& direction) {
    Record record;
    record.options = run_options(lesson, options);
    record.hta = leaves_hta_traces(options);
    cluster_options(options, record.options.ranks, false);
    if (options.out) naming_out(*options.out, require_place);

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

int run_lesson(const LessonRequest& request, const std::vector<std::string>& arguments) {
    const LessonEntry& lesson = find_lesson(request.slug);
    require_understood(request.options, lesson);
    const bool may_be_placed =
        request.options.backend == "nccl" || request.options.backend == "gpu";
    if (may_be_placed) gpu::set_environment();
    const std::optional<gpu::Placement> placement =
        may_be_placed ? gpu::find_placement(gpu::process_environment()) : std::nullopt;
    const LessonOptions options =
        resolved(request.options, lesson.default_ranks, placement);
    // Said once: by the process that starts the others, or by rank 0 where another did.
    const bool speaks =
        !placement || (placement->rank == 0 && placement->launcher != "lockstep");
    if (request.options.backend == "gpu" && speaks)
        write_all(STDERR_FILENO,
                  fmt::format("lockstep: --backend gpu is {} here\n", options.backend),
                  "standard error");
    if (options.backend == "nccl")
        return run_on_processes(lesson, options, placement, arguments);
    return run_steps(lesson, options, [](auto&, auto&) { return true; });
}

}  // namespace lockstep::lessons
