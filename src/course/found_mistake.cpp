#include "src/course/found_mistake.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

/// Returns an error's line and likely reason. If it has no line, a number is too large.
std::string trouble_of(const JsonError& error) {
    const std::string text = error.what();
    const std::size_t begin = text.find("line ");
    const std::size_t end = text.find(':', std::min(begin, text.size()));
    if (begin == std::string::npos || end == std::string::npos)
        return "a number is too large";
    return text.substr(begin, end - begin) + " (a comma too many, or one missing?)";
}

Json parsed(const std::string& text, const std::string& name) {
    try {
        return Json::parse(text);
    } catch (const JsonError& error) {
        throw UsageError(fmt::format("{} is not JSON: {}", name, trouble_of(error)));
    }
}

}  // namespace

FoundMistake::FoundMistake(const std::string& text, const std::string& name,
                           const std::string& program)
    : where_(fmt::format("{}, \"{}\"", name, program)) {
    const Json document = parsed(text, name);
    require(document.is_object() && document.contains(program),
            "{}: expected an object with an entry \"{}\"", name, program);
    entry_ = document.at(program);
    expect(entry_.is_object(), "an object with \"ranks\", \"line\" and \"cause\"");
}

bool FoundMistake::has(const char* part) const {
    expect(entry_.contains(part), fmt::format("an entry \"{}\"", part));
    return !entry_.at(part).is_null();
}

void FoundMistake::expect(bool holds, const std::string& expected) const {
    require(holds, "{}: expected {}", where_, expected);
}

std::optional<std::set<int>> FoundMistake::ranks(int count) const {
    if (!has("ranks")) return std::nullopt;
    const std::string expected = fmt::format(
        "\"ranks\": a list of numbers from 0 to {}, such as [0], or \"all\"", count - 1);
    const Json& given = entry_.at("ranks");
    std::set<int> ranks;
    if (given.is("all")) {
        for (int rank = 0; rank < count; ++rank)
            ranks.insert(rank);
        return ranks;
    }
    expect(given.is_array() && given.size() > 0, expected);
    for (const Json& rank : given.elements()) {
        expect(rank.is_integer() && rank.get<std::int64_t>() >= 0 &&
                   rank.get<std::int64_t>() < count,
               expected);
        ranks.insert(rank.get<int>());
    }
    return ranks;
}

std::optional<std::int64_t> FoundMistake::line() const {
    if (!has("line")) return std::nullopt;
    constexpr int kMostLines = 1'000'000;
    const Json& given = entry_.at("line");
    const std::int64_t line = given.is_integer() ? given.get<std::int64_t>() : 0;
    expect(line > 0 && line < kMostLines, "\"line\": the number of a line");
    return line;
}

std::optional<std::string> FoundMistake::cause(
    const std::vector<std::string>& causes) const {
    if (!has("cause")) return std::nullopt;
    const Json& given = entry_.at("cause");
    const auto is_given = [&](const std::string& cause) { return given.is(cause); };
    expect(std::any_of(causes.begin(), causes.end(), is_given),
           fmt::format("\"cause\": one of {}", fmt::join(causes, ", ")));
    return given.get<std::string>();
}

}  // namespace lockstep
