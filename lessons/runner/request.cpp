#include "lessons/runner/request.hpp"

#include <algorithm>
#include <charconv>
#include <limits>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/arguments.hpp"
#include "lessons/runner/help_text.hpp"
#include "lessons/runner/nearest.hpp"
#include "lessons/runner/number_text.hpp"
#include "lessons/runner/request_text.hpp"
#include "lessons/runner/terminal.hpp"
#include "lessons/runner/utf8.hpp"
#include "sim/cluster.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

template <typename Number>
Number whole_number(const std::string& option, const std::string& text, Number least,
                    Number most) {
    Number value{};
    const char* end = text.data() + text.size();
    const auto [stopped, error] = std::from_chars(text.data(), end, value);
    require(error == std::errc{} && stopped == end && value >= least && value <= most,
            [&] {
                return fmt::format("{} {}: a whole number from {} to {} is expected",
                                   option, printable(text), least, most);
            });
    return value;
}

std::string one_of(const std::string& option, const std::string& text,
                   const std::vector<std::string>& allowed) {
    require(std::find(allowed.begin(), allowed.end(), text) != allowed.end(), [&] {
        return fmt::format("{} {}: {} is expected", option, printable(text),
                           either(allowed));
    });
    return text;
}

std::optional<std::filesystem::path> path_of(const Arguments& arguments,
                                             const std::string& option) {
    const std::optional<std::string> value = arguments.value(option);
    if (!value) return std::nullopt;
    require(!value->empty(), [&] { return option + ": a path is expected"; });
    return *value;
}

std::map<std::string, std::string> settings_of(const Arguments& arguments) {
    std::map<std::string, std::string> settings;
    for (const std::string& text : arguments.values("--set")) {
        const std::size_t sign = text.find('=');
        require(sign != std::string::npos && sign > 0, [&] {
            return fmt::format("--set {}: KEY=VALUE is expected", printable(text));
        });
        const bool fresh =
            settings.emplace(text.substr(0, sign), text.substr(sign + 1)).second;
        require(fresh, [&] {
            return fmt::format("--set {}: this setting is given twice", printable(text));
        });
    }
    return settings;
}

LessonOptions lesson_options(const Arguments& arguments) {
    LessonOptions options;
    constexpr int kMost = std::numeric_limits<int>::max();
    if (const auto step = arguments.value("--step"))
        options.step = whole_number("--step", *step, 1, kMost);
    if (const auto ranks = arguments.value("--ranks"))
        options.ranks =
            whole_number("--ranks", *ranks, 1, sim::ClusterOptions::kMaxRanks);
    if (const auto seed = arguments.value("--seed"))
        options.seed = whole_number("--seed", *seed, std::uint64_t{0},
                                    std::numeric_limits<std::uint64_t>::max());
    if (const auto dtype = arguments.value("--dtype"))
        options.dtype =
            one_of("--dtype", *dtype, {"f32", "f64"}) == "f64" ? DType::f64 : DType::f32;
    if (const auto backend = arguments.value("--backend"))
        options.backend = one_of("--backend", *backend, {"sim", "cuda", "nccl", "gpu"});
    options.cluster = arguments.value("--cluster").value_or(options.cluster);
    options.text = path_of(arguments, "--text");
    options.data = path_of(arguments, "--data");
    options.out = path_of(arguments, "--out");
    options.settings = settings_of(arguments);
    options.json = arguments.has("--json");
    return options;
}

int help_columns() {
    return std::min(window_columns(STDOUT_FILENO), 100);
}

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

Request compare_request(const std::vector<std::string>& words) {
    const Arguments arguments = take_apart(compare_command_text(), words);
    if (arguments.help)
        return TextRequest{help_text(compare_command_text(), help_columns())};
    CompareRequest request{arguments.positionals[0], arguments.positionals[1],
                           std::nullopt, arguments.has("--json")};
    if (const auto text = arguments.value("--bound")) {
        request.bound = parse_typed_number(*text);
        require(request.bound && *request.bound >= 0, [&] {
            return fmt::format("--bound {}: a number from 0 on is expected",
                               printable(*text));
        });
    }
    return request;
}

}  // namespace

Request read_request(const std::vector<std::string>& arguments) {
    if (arguments.empty()) return TextRequest{program_text(help_columns())};
    const std::string& first = arguments.front();
    const std::vector<std::string> rest(arguments.begin() + 1, arguments.end());
    if (first == "lesson") return lesson_request(rest);
    if (first == "compare") return compare_request(rest);
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
    static const std::vector<std::string> commands{"lessons", "lesson", "compare"};
    const std::string kind = first.starts_with("-") ? "option" : "command";
    throw UsageError(
        fmt::format("unknown {} '{}'; there are lessons, lesson, compare, --help and "
                    "--version",
                    kind, printable(first)));
}

}  // namespace lockstep::lessons
