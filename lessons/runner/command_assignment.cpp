#include <algorithm>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/grade.hpp"
#include "lessons/grader/student_compiler.hpp"
#include "lessons/runner/command.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/report/files.hpp"
#include "src/text/utf8.hpp"
#include "src/text/wrap.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

/// Nothing that is there is written over.
void require_nothing_there(const fs::path& folder) {
    require(!fs::exists(fs::symlink_status(folder)) ||
                (fs::is_directory(folder) && fs::is_empty(folder)),
            "{}: something is there already; a new folder is "
            "expected",
            printable(folder.string()));
}

void require_folder(const fs::path& folder, const char* what) {
    require(fs::is_directory(folder), "{}: {} is expected", printable(folder.string()),
            what);
}

/// Criteria that have been come to.
std::int64_t judged(const GradeReport& report) {
    return std::count_if(
        report.criteria.begin(), report.criteria.end(),
        [](const CriterionReport& entry) { return entry.mark != Mark::not_judged; });
}

int points_of(const Assignment& assignment) {
    int points = 0;
    for (const Criterion& criterion : assignment.criteria)
        points += criterion.points;
    return points;
}

}  // namespace

int list_assignments() {
    constexpr int kIndent = 4;
    const int width = std::min(window_columns(STDOUT_FILENO), 100);
    std::string text;
    for (const Assignment& assignment : assignments()) {
        text += fmt::format("{}  ({} points)\n", assignment.slug, points_of(assignment));
        for (const std::string* paragraph : {&assignment.title, &assignment.about})
            for (const std::string& line : wrap(*paragraph, width - kIndent))
                text += pad_right("", kIndent) + line + "\n";
    }
    print(text);
    return kSuccess;
}

int new_assignment(const NewAssignmentRequest& request) {
    const Assignment& assignment = find_assignment(request.slug);
    const Kit kit = Kit::find();
    require_nothing_there(request.folder);
    fs::create_directories(request.folder);
    fs::copy(kit.handout(assignment.slug), request.folder);
    print(fmt::format(
        "{0}: {1} is in {2}. Begin with its README.md; then\n\n"
        "    cd {2}\n"
        "    meson setup build --pkg-config-path {3}\n"
        "    meson test -C build --print-errorlogs\n\n"
        "and in the end lockstep grade {0} {2}\n\n"
        "The headers that it names, src/device/device.hpp and others, are in\n"
        "{4}.\n",
        assignment.slug, assignment.title, printable(request.folder.string()),
        printable(kit.pkgconfig().string()), printable(kit.include().string())));
    return kSuccess;
}

int show_targets(const TargetsRequest& request) {
    require_folder(request.folder, "a folder");
    const GradePlan plan{
        &find_assignment(request.slug), request.folder, student_compiler(), {}};
    const std::string json = measure_targets(plan, Kit::find(), request.seed).json();
    if (request.out)
        write_text_file(*request.out, json);
    else
        print(json);
    return kSuccess;
}

int grade_folder(const GradeRequest& request) {
    const GradePlan plan{&find_assignment(request.slug), request.folder,
                         student_compiler()};
    const Kit kit = Kit::find();
    require_folder(request.folder, "a student's folder");
    const auto progress = show_progress(
        "grading", static_cast<std::int64_t>(plan.assignment->criteria.size()));
    const GradeReport report = grade(plan, kit, [&](const GradeReport& so_far) {
        progress->advance(judged(so_far));
        if (request.out) write_grade(so_far, request.format, *request.out);
    });
    if (!request.out)
        print(grade_text_of(report, request.format,
                            std::min(window_columns(STDOUT_FILENO), 100),
                            wants_colour(STDOUT_FILENO)));
    return report.earned() == report.points() ? kSuccess : kFailed;
}

}  // namespace lockstep::lessons
