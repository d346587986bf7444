#include "src/course/found_mistake.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"
#include "src/text/json.hpp"

namespace lockstep {

namespace {

/// One program's entry, of which each member is asked for by itself.
class Entry {
  public:
    Entry(const Json& entry, std::string where)
        : entry_(entry), where_(std::move(where)) {
        expect(entry.is_object(), "an object with \"ranks\", \"line\" and \"cause\"");
    }

    /// False if the member is still open.
    bool has(const char* member) const {
        expect(entry_.contains(member), fmt::format("an entry \"{}\"", member));
        return !entry_.at(member).is_null();
    }

    std::set<int> ranks(int count) const {
        const std::string expected = fmt::format(
            "\"ranks\": a list of numbers from 0 to {}, such as [0], or \"all\"",
            count - 1);
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

    std::int64_t line() const {
        constexpr int kMostLines = 1'000'000;
        const Json& given = entry_.at("line");
        const std::int64_t line = given.is_integer() ? given.get<std::int64_t>() : 0;
        expect(line > 0 && line < kMostLines, "\"line\": the number of a line");
        return line;
    }

    std::string cause(const std::vector<std::string>& causes) const {
        const Json& given = entry_.at("cause");
        const auto is_given = [&](const std::string& cause) { return given.is(cause); };
        expect(std::any_of(causes.begin(), causes.end(), is_given),
               fmt::format("\"cause\": one of {}", fmt::join(causes, ", ")));
        return given.get<std::string>();
    }

  private:
    void expect(bool holds, const std::string& expected) const {
        require(holds, "{}: expected {}", where_, expected);
    }

    const Json& entry_;
    std::string where_;
};

/// Returns what is wrong, with the place if the parser's sentence names one.
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
        throw UsageError(fmt::format("{} is no JSON: {}", name, trouble_of(error)));
    }
}

}  // namespace

std::optional<FoundMistake> read_found_mistake(const std::string& text,
                                               const std::string& name,
                                               const std::string& program, int ranks,
                                               const std::vector<std::string>& causes) {
    const Json document = parsed(text, name);
    require(document.is_object() && document.contains(program),
            "{}: expected an object with an entry \"{}\"", name, program);
    const Entry entry(document.at(program), fmt::format("{}, \"{}\"", name, program));
    const bool ranks_there = entry.has("ranks"), line_there = entry.has("line"),
               cause_there = entry.has("cause");
    if (!ranks_there || !line_there || !cause_there) return std::nullopt;
    return FoundMistake{entry.ranks(ranks), entry.line(), entry.cause(causes)};
}

}  // namespace lockstep
