#include "lessons/runner/request_compare.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "lessons/runner/arguments.hpp"
#include "lessons/runner/help_text.hpp"
#include "lessons/runner/lesson_options.hpp"
#include "lessons/runner/request_text.hpp"
#include "src/core/require.hpp"
#include "src/text/numbers.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

std::optional<double> bound_of(const Arguments& arguments) {
    const std::optional<std::string> text = arguments.value("--bound");
    if (!text) return std::nullopt;
    const std::optional<double> bound = parse_typed_number(*text);
    require(bound && *bound >= 0, "--bound {}: a number from 0 on is expected",
            printable(*text));
    return bound;
}

std::array<std::string, 2> two_backends(const std::string& text) {
    const std::size_t comma = std::min(text.find(','), text.size());
    const std::string first = text.substr(0, comma);
    const std::string second = text.substr(std::min(comma + 1, text.size()));
    const auto known = [](const std::string& name) {
        return name == "sim" || name == "cuda" || name == "nccl" || name == "gpu";
    };
    require(known(first) && known(second),
            "--backends {}: two of sim, cuda, nccl and gpu are expected, as in sim,gpu",
            printable(text));
    return {first, second};
}

/// The options of a lesson as they were given, without those that compare takes itself.
std::vector<std::string> words_of(const Arguments& arguments) {
    std::vector<std::string> words;
    for (const auto& [name, values] : arguments.options) {
        if (name == "--backends" || name == "--bound" || name == "--json" ||
            name == "--out")
            continue;
        for (const std::string& value : values)
            words.push_back(name + "=" + value);
    }
    return words;
}

Request backends_request(const std::vector<std::string>& words) {
    const Arguments arguments = take_apart(compare_backends_command_text(), words);
    BackendsRequest request;
    request.slug = arguments.positionals.front();
    request.backends = two_backends(*arguments.value("--backends"));
    request.lesson_words = words_of(arguments);
    request.lesson_options = lesson_options(arguments);
    const auto numerics = request.lesson_options.settings.find("numerics");
    require(
        numerics == request.lesson_options.settings.end() || numerics->second != "off",
        "--set numerics=off: there are then no numbers to compare");
    request.bound = bound_of(arguments);
    request.out = path_of(arguments, "--out");
    request.json = arguments.has("--json");
    return request;
}

}  // namespace

Request compare_request(const std::vector<std::string>& words) {
    const bool help = std::ranges::any_of(
        words, [](const std::string& word) { return word == "--help" || word == "-h"; });
    if (help)
        return TextRequest{help_text(compare_command_text(), help_columns()) + "\n" +
                           help_text(compare_backends_command_text(), help_columns())};
    const bool backends = std::ranges::any_of(words, [](const std::string& word) {
        return word == "--backends" || word.starts_with("--backends=");
    });
    if (backends) return backends_request(words);
    const Arguments arguments = take_apart(compare_command_text(), words);
    return CompareRequest{arguments.positionals[0], arguments.positionals[1],
                          bound_of(arguments), arguments.has("--json")};
}

}  // namespace lockstep::lessons
