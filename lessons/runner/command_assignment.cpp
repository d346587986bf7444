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
    Command& command = line.add("grade",
                                "Builds what is in a folder, runs it, and grades how it "
                                "was done. Exit status 1 if points are missing.");
    auto& request = command.asks_for<GradeRequest>();
    command.positional("SLUG", "which assignment", text_into(request.slug));
    command.suggest(assignment_slugs());
    command.rest(
        "DIR",
        "the student's folder, or a .zip of it; of several, --out is a folder for a "
        "report each and grades.csv, and so it is of one if it ends with a /",
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
                   "write the report there; a report without points comes first, and is "
                   "replaced after each criterion",
                   path_into(request.out));
    command.option("--at-once", "N",
                   "grade so many of several at a time; default as many as there are "
                   "processors",
                   whole_into(request.at_once, 1, 256));
    command.flag("--continue",
                 "grade no submission again that has points and a report in --out, by "
                 "this version of Lockstep, and has not changed since",
                 request.goes_on);
    command.option("--drawn", "N",
                   "draw sizes and values as the grading did whose report says N, to see "
                   "again what it asked; default anew",
                   whole_into(request.drawn, std::int64_t{0},
                              std::numeric_limits<std::int64_t>::max()));
    command.flag("--require-confinement",
                 "grade nothing where a layer of what confines students' programs is "
                 "missing",
                 request.require_confinement);
    command.flag("--show-output",
                 "tell what a program that ended badly had printed; what it can read, it "
                 "can print",
                 request.show_output);
}

void become_grader(const std::vector<std::string>& words) {
    const std::filesystem::path folder = os::folder_of_program();
    for (const char* place : {"lockstep-grader", LOCKSTEP_GRADER}) {
        const std::filesystem::path program = folder / place;
        if (std::filesystem::exists(program)) os::become(program, words);
    }
    throw MissingError(fmt::format(
        "the grader is neither in {0} nor in {0}/{1}; build or "
        "install Lockstep anew",
        folder.string(), std::filesystem::path(LOCKSTEP_GRADER).parent_path().string()));
}

}  // namespace lockstep::lessons
