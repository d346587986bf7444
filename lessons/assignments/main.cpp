// The grader's program, which `lockstep assignment` and `lockstep grade` run.
#include <algorithm>
#include <thread>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/assignments/catalogue.hpp"
#include "lessons/grader/build_program.hpp"
#include "lessons/grader/grade_many.hpp"
#include "lessons/grader/kit.hpp"
#include "lessons/runner/command_line.hpp"
#include "lessons/runner/terminal.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/report/files.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

/// Throws UsageError unless the folder is new or empty, so that nothing is overwritten.
void require_nothing_there(const fs::path& folder) {
    require(!fs::exists(fs::symlink_status(folder)) ||
                (fs::is_directory(folder) && fs::is_empty(folder)),
            "{} exists already; name a new or an empty folder",
            printable(folder.string()));
}

/// Returns the number of criteria that have been judged.
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

int run(const AssignmentsRequest&) {
    std::string text;
    for (const Assignment& assignment : assignments())
        text +=
            listed(fmt::format("{}  ({} points)", assignment.slug, points_of(assignment)),
                   {assignment.title, assignment.about});
    print(text);
    return kSuccess;
}

int run(const NewAssignmentRequest& request) {
    const Assignment& assignment = find_assignment(request.slug);
    const Kit kit = Kit::find();
    require_nothing_there(request.folder);
    fs::create_directories(request.folder);
    fs::copy(kit.handout(assignment.slug), request.folder);
    print(fmt::format(
        "{0}: {1} is in {2}.\n"
        "Begin with its README.md, or README.zh.md in Chinese; then\n\n"
        "    cd {2}\n"
        "    meson setup build --pkg-config-path {3}\n"
        "    meson test -C build --print-errorlogs\n\n"
        "and in the end lockstep grade {0} {2}\n\n"
        "The headers that it names, lockstep/device/device.hpp and others, are in\n"
        "{4}.\n",
        assignment.slug, assignment.title, printable(request.folder.string()),
        printable(kit.pkgconfig().string()), printable(kit.include().string())));
    return kSuccess;
}

int run(const GradescopeRequest& request) {
    const Assignment& assignment = find_assignment(request.slug);
    const std::string name = printable(request.file.string());
    require(!fs::exists(fs::symlink_status(request.file)) ||
                fs::is_regular_file(request.file),
            [&] { return name + ": this exists and is not a file"; });
    const fs::path root = Kit::find().sources();
    const os::Child packing = os::run_child(
        {"python3", "-B", (root / "lessons/grader/gradescope/pack.py").string(),
         root.string(), assignment.slug, fs::absolute(request.file).string()});
    if (packing.status != 0) {
        const std::string& said = packing.errors;
        const std::size_t last = said.find_last_of('\n', said.size() - 2);
        throw MissingError(fmt::format(
            "{} could not be packed: {}", name,
            printable(said.substr(last == std::string::npos ? 0 : last + 1))));
    }
    print(
        fmt::format("{} is an autograder for {}: upload it to Gradescope, with Ubuntu "
                    "24.04 as the base image.\n",
                    name, assignment.slug));
    return kSuccess;
}

void require_submission(const fs::path& path) {
    const bool is_link = fs::is_symlink(fs::symlink_status(path));
    require(fs::is_directory(path) ||
                (path.extension() == ".zip" && fs::is_regular_file(path) && !is_link),
            "{}: a student's folder, or a .zip of it, is expected{}",
            printable(path.string()), is_link ? ", and no link" : "");
}

int grade_one(const GradeRequest& request, GradePlan plan, const Kit& kit) {
    plan.folder = request.submissions.front();
    const auto progress = show_progress(
        "grading", static_cast<std::int64_t>(plan.assignment->criteria.size()));
    const GradeReport report = grade(plan, kit, [&](const GradeReport& so_far) {
        progress->advance(judged(so_far));
        const bool is_last = so_far.finished || !so_far.stopped.empty();
        if (request.out && (is_last || !leads_to_stream(*request.out)))
            naming("--out", *request.out,
                   [&](const auto& path) { write_grade(so_far, request.format, path); });
    });
    if (!request.out)
        print(grade_text_of(report, request.format, help_columns(),
                            wants_colour(STDOUT_FILENO)));
    return report.earned() == report.points() ? kSuccess : kFailed;
}

int grade_several(const GradeRequest& request, const GradePlan& each, const Kit& kit) {
    require(request.out.has_value(),
            "--out is missing: a folder for the reports of {} submissions",
            request.submissions.size());
    const int processors = static_cast<int>(std::thread::hardware_concurrency());
    const GradeManyPlan plan{each,
                             request.submissions,
                             *request.out,
                             request.format,
                             request.at_once.value_or(std::max(processors, 1)),
                             request.goes_on};
    const auto progress =
        show_progress("grading", static_cast<std::int64_t>(request.submissions.size()));
    const GradedMany result = grade_many(plan, kit, [&](std::size_t done) {
        progress->advance(static_cast<std::int64_t>(done));
    });
    print(fmt::format(
        "{} submission{} graded, {} with all points{}{}: {}\n", result.graded,
        result.graded == 1 ? "" : "s", result.with_all_points,
        result.kept == 0 ? "" : fmt::format("; {} kept as they were", result.kept),
        result.stopped == 0
            ? ""
            : fmt::format("; {} not graded, because the machine failed", result.stopped),
        printable((*request.out / "grades.csv").string())));
    return result.stopped == 0 ? kSuccess : kLacking;
}

/// Returns whether --out is a folder for several reports: there are several submissions,
/// or the folder exists, or the name ends with a slash, or the command continues there
/// and the name is not that of a report. So a script that always passes --continue works
/// from the first submission on.
bool is_of_course(const GradeRequest& request) {
    if (request.submissions.size() > 1) return true;
    if (!request.out) return false;
    const std::string extension = request.out->extension().string();
    const bool names_report =
        extension == ".txt" || extension == ".json" || extension == ".xml";
    return fs::is_directory(*request.out) || !request.out->has_filename() ||
           (request.goes_on && !names_report);
}

int run(const GradeRequest& request) {
    GradePlan plan{&find_assignment(request.slug), {}, student_compiler()};
    plan.requires_confinement = request.require_confinement;
    plan.shows_output = request.show_output;
    plan.drawn = request.drawn;
    const Kit kit = Kit::find();
    for (const fs::path& path : request.submissions)
        require_submission(path);
    require(!request.goes_on || is_of_course(request),
            "--continue needs a folder for the reports: --out FOLDER/");
    return is_of_course(request) ? grade_several(request, plan, kit)
                                 : grade_one(request, plan, kit);
}

}  // namespace

}  // namespace lockstep::lessons

int main(int count, char** words) {
    using namespace lockstep;
    using namespace lockstep::lessons;
    return run_main(count, words, [](const auto& arguments) {
        const Request request = read_request(arguments);
        const auto* const asked = std::get_if<GraderRequest>(&request);
        require(asked != nullptr,
                "lockstep-grader only serves assignments; run lockstep, which calls it");
        return std::visit([](const auto& one) { return run(one); }, *asked);
    });
}
