#include "lessons/runner/request.hpp"

#include <fmt/format.h>

#include "lessons/runner/arguments.hpp"
#include "lessons/runner/help_text.hpp"
#include "lessons/runner/lesson_options.hpp"
#include "lessons/runner/request_assignment.hpp"
#include "lessons/runner/request_compare.hpp"
#include "lessons/runner/request_schedule.hpp"
#include "lessons/runner/request_text.hpp"
#include "src/core/require.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

Request lesson_request(const std::vector<std::string>& words) {
    const Arguments arguments = take_apart(lesson_command_text(), words);
    if (arguments.help) {
        const std::vector<std::string>& given = arguments.positionals;
        return TextRequest{
            help_text(lesson_command_text(), help_columns()) +
            settings_text(given.empty() ? "" : given.front(), help_columns())};
    }
    return LessonRequest{arguments.positionals.front(), lesson_options(arguments)};
}

Request fault_request(const std::vector<std::string>& words) {
    const Arguments arguments = take_apart(fault_command_text(), words);
    if (arguments.help)
        return TextRequest{help_text(fault_command_text(), help_columns())};
    return FaultRequest{arguments.positionals.front()};
}

Request doctor_request(const std::vector<std::string>& words) {
    const Arguments arguments = take_apart(doctor_command_text(), words);
    if (arguments.help)
        return TextRequest{help_text(doctor_command_text(), help_columns())};
    return DoctorRequest{arguments.has("--json")};
}

}  // namespace

Request read_request(const std::vector<std::string>& arguments) {
    if (arguments.empty()) return TextRequest{program_text(help_columns())};
    const std::string& first = arguments.front();
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    if (first == "lesson") return lesson_request(rest);
    if (first == "compare") return compare_request(rest);
    if (first == "schedule") return schedule_request(rest);
    if (first == "fault") return fault_request(rest);
    if (first == "assignment") return assignment_request(rest);
    if (first == "grade") return grade_request(rest);
    if (first == "doctor") return doctor_request(rest);
    if (first == "lessons") {
        if (take_apart(lessons_command_text(), rest).help)
            return TextRequest{help_text(lessons_command_text(), help_columns())};
        return LessonsRequest{};
    }
    const bool help = first == "--help" || first == "-h" || first == "help";
    if (help || first == "--version") {
        require(rest.empty(), [&] {
            return fmt::format("'{}' is one argument too many for {}", printable(rest[0]),
                               first);
        });
        return TextRequest{help ? program_text(help_columns()) : version_text()};
    }
    const std::string kind = first.starts_with("-") ? "option" : "command";
    throw UsageError(fmt::format(
        "unknown {} '{}'; there are lessons, lesson, compare, schedule, fault, "
        "assignment, grade, doctor, --help and --version",
        kind, printable(first)));
}

}  // namespace lockstep::lessons
