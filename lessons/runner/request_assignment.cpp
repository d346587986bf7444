#include "lessons/runner/request_assignment.hpp"

#include <limits>

#include <fmt/format.h>

#include "lessons/runner/arguments.hpp"
#include "lessons/runner/help_text.hpp"
#include "lessons/runner/request_text.hpp"
#include "src/core/require.hpp"
#include "src/text/names.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

Request help_of(const CommandText& command) {
    return TextRequest{help_text(command, help_columns())};
}

std::optional<std::filesystem::path> out_of(const Arguments& arguments) {
    const auto out = arguments.value("--out");
    if (!out) return std::nullopt;
    require(!out->empty(), "--out: a file's name is expected");
    return *out;
}

Request list_request(const std::vector<std::string>& words) {
    const CommandText command = assignment_list_command_text();
    if (take_apart(command, words).help) return help_of(command);
    return AssignmentsRequest{};
}

Request new_request(const std::vector<std::string>& words) {
    const CommandText command = assignment_new_command_text();
    const Arguments arguments = take_apart(command, words);
    if (arguments.help) return help_of(command);
    return NewAssignmentRequest{arguments.positionals[0], arguments.positionals[1]};
}

Request targets_request(const std::vector<std::string>& words) {
    const CommandText command = assignment_targets_command_text();
    const Arguments arguments = take_apart(command, words);
    if (arguments.help) return help_of(command);
    TargetsRequest request{arguments.positionals[0], arguments.positionals[1], 1,
                           out_of(arguments)};
    if (const auto seed = arguments.value("--seed"))
        request.seed = whole_number<std::uint64_t>(
            "--seed", *seed, 0, std::numeric_limits<std::uint64_t>::max());
    return request;
}

Request gradescope_request(const std::vector<std::string>& words) {
    const CommandText command = assignment_gradescope_command_text();
    const Arguments arguments = take_apart(command, words);
    if (arguments.help) return help_of(command);
    return GradescopeRequest{arguments.positionals[0], arguments.positionals[1]};
}

}  // namespace

Request assignment_request(const std::vector<std::string>& words) {
    const std::vector<std::string> known{"list", "new", "targets", "gradescope"};
    require(!words.empty(), "lockstep assignment: expected {} behind it", either(known));
    const std::vector<std::string> rest(words.begin() + 1, words.end());
    const std::string& first = words.front();
    if (first == "--help" || first == "-h")
        return TextRequest{assignment_text(help_columns())};
    if (first == "list") return list_request(rest);
    if (first == "new") return new_request(rest);
    if (first == "targets") return targets_request(rest);
    if (first == "gradescope") return gradescope_request(rest);
    throw UsageError(fmt::format("lockstep assignment: '{}' is not {}{}",
                                 printable(first), either(known),
                                 did_you_mean(first, known)));
}

Request grade_request(const std::vector<std::string>& words) {
    const CommandText command = grade_command_text();
    const Arguments arguments = take_apart(command, words);
    if (arguments.help) return help_of(command);
    GradeRequest request{arguments.positionals[0], arguments.positionals[1],
                         GradeFormat::text, out_of(arguments)};
    if (const auto name = arguments.value("--format")) {
        const auto format = read_grade_format(*name);
        require(format.has_value(), "--format {}: expected {}", printable(*name),
                either(grade_format_names()));
        request.format = *format;
    }
    return request;
}

}  // namespace lockstep::lessons
