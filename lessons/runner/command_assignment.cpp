#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "lessons/runner/assignment_slugs.hpp"
#include "lessons/runner/command_line.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"

namespace lockstep::lessons {

namespace {

std::vector<std::string> assignment_slugs() {
    return {kAssignmentSlugs.begin(), kAssignmentSlugs.end()};
}

}  // namespace

void declare_assignment(CommandLine& line) {
    line.add("assignment", "Hands out assignments; for instructors, packs them.");
    line.add("assignment list", "Lists the assignments, in the order of the course.")
        .asks_for<AssignmentsRequest>();

    Command& hand_out =
        line.add("assignment new",
                 "Makes a folder to work on an assignment in. Begin with its README.md.");
    auto& handed_out = hand_out.asks_for<NewAssignmentRequest>();
    hand_out.positional("SLUG", "which assignment", text_into(handed_out.slug));
    hand_out.suggest(assignment_slugs());
    hand_out.positional("DIR", "a folder that is not there yet",
                        path_into(handed_out.folder));

    Command& pack = line.add("assignment gradescope",
                             "For instructors: packs an autograder for Gradescope.");
    auto& packed = pack.asks_for<GradescopeRequest>();
    pack.positional("SLUG", "which assignment", text_into(packed.slug));
    pack.suggest(assignment_slugs());
    pack.positional("FILE", "the .zip to write", path_into(packed.file));
}

void declare_grade(CommandLine& line) {
    Command& command = line.add(
        "grade",
        "Builds, runs and grades a submission. Exit status 1 if points are missing.");
    auto& request = command.asks_for<GradeRequest>();
    command.positional("SLUG", "which assignment", text_into(request.slug));
    command.suggest(assignment_slugs());
    command.rest("DIR",
                 "the student's folder, or a .zip of it. For several submissions, --out "
                 "is a folder: it gets grades.csv and one report each. For one, --out is "
                 "a file, or a folder if it ends with /",
                 true, [&request](const std::string& name, const std::string& value) {
                     require(!value.empty(), "{}: a path is expected", name);
                     request.submissions.emplace_back(value);
                 });
    std::vector<std::string> formats;
    formats.reserve(kGradeFormats.size());
    for (const auto& [name, format] : kGradeFormats)
        formats.push_back(name);
    command.option("--format", "NAME", either(formats) + "; default text",
                   choice_into(request.format, kGradeFormats));
    command.suggest(formats);
    command.option("--out", "FILE",
                   "write the report to this file; it is valid from the start and "
                   "updated after each criterion",
                   path_into(request.out));
    command.option("--at-once", "N",
                   "number of submissions graded at the same time; default: the number "
                   "of processors",
                   whole_into(request.at_once, 1, 256));
    command.flag("--continue",
                 "skip unchanged submissions that this version of Lockstep has already "
                 "graded in --out",
                 request.goes_on);
    command.option("--drawn", "N",
                   "repeat the random sizes and values of the report with this number; "
                   "default: new ones",
                   whole_into(request.drawn, std::int64_t{0},
                              std::numeric_limits<std::int64_t>::max()));
    command.flag("--require-confinement",
                 "do not grade if this machine lacks a layer of confinement for "
                 "students' programs",
                 request.require_confinement);
    command.flag("--show-output",
                 "show the output of a program that failed (it can print any file that "
                 "it can read)",
                 request.show_output);
}

void become_grader(const std::vector<std::string>& words) {
    const std::filesystem::path folder = os::folder_of_program();
    for (const char* place : {"lockstep-grader", LOCKSTEP_GRADER}) {
        const std::filesystem::path program = folder / place;
        if (std::filesystem::exists(program)) os::become(program, words);
    }
    throw MissingError(fmt::format(
        "the grader is neither in {0} nor in {0}/{1}; build or install Lockstep again",
        folder.string(), std::filesystem::path(LOCKSTEP_GRADER).parent_path().string()));
}

}  // namespace lockstep::lessons
