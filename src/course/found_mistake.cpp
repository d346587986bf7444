#include "src/course/found_mistake.hpp"

#include <algorithm>
#include <nlohmann/json.hpp>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/core/require.hpp"

namespace lockstep {

namespace {

using nlohmann::json;

/// One program's entry, of which each part is asked for by itself.
class Entry {
  public:
    Entry(const json& entry, std::string where)
        : entry_(entry), where_(std::move(where)) {
        expect(entry.is_object(), "an object with \"ranks\", \"line\" and \"cause\"");
    }

    /// False where the part is still open.
    bool has(const char* part) const {
        expect(entry_.contains(part), fmt::format("an entry \"{}\"", part));
        return !entry_.at(part).is_null();
    }

    std::set<int> ranks(int count) const {
        const std::string expected = fmt::format(
            "\"ranks\": a list of numbers from 0 to {}, such as [0], or \"all\"",
            count - 1);
        const json& given = entry_.at("ranks");
        std::set<int> ranks;
        if (given == "all") {
            for (int rank = 0; rank < count; ++rank)
                ranks.insert(rank);
            return ranks;
        }
        expect(given.is_array() && !given.empty(), expected);
        for (const json& rank : given) {
            expect(rank.is_number_integer() && rank >= 0 && rank < count, expected);
            ranks.insert(rank.get<int>());
        }
        return ranks;
    }

    std::int64_t line() const {
        constexpr int kMostLines = 1'000'000;
        const json& given = entry_.at("line");
        expect(given.is_number_integer() && given > 0 && given < kMostLines,
               "\"line\": the number of a line");
        return given.get<std::int64_t>();
    }

    std::string cause(const std::vector<std::string>& causes) const {
        const json& given = entry_.at("cause");
        const auto is_given = [&](const std::string& cause) { return given == cause; };
        expect(std::any_of(causes.begin(), causes.end(), is_given),
               fmt::format("\"cause\": one of {}", fmt::join(causes, ", ")));
        return given.get<std::string>();
    }

  private:
    void expect(bool holds, const std::string& expected) const {
        require(holds, "{}: expected {}", where_, expected);
    }

    const json& entry_;
    std::string where_;
};

/// What is wrong, as far as it goes with the place in the parser's sentence.
std::string trouble_of(const json::exception& error) {
    const std::string text = error.what();
    const std::size_t begin = text.find("line ");
    const std::size_t end = text.find(':', std::min(begin, text.size()));
    if (begin == std::string::npos || end == std::string::npos)
        return "a number is too large";
    return text.substr(begin, end - begin) + " (a comma too many, or one missing?)";
}

json parsed(const std::string& text, const std::string& name) {
    try {
        return json::parse(text);
    } catch (const json::exception& error) {
        throw UsageError(fmt::format("{} is no JSON: {}", name, trouble_of(error)));
    }
}

}  // namespace

std::optional<FoundMistake> read_found_mistake(const std::string& text,
                                               const std::string& name,
                                               const std::string& program, int ranks,
                                               const std::vector<std::string>& causes) {
    const json document = parsed(text, name);
    require(document.is_object() && document.contains(program),
            "{}: expected an object with an entry \"{}\"", name, program);
    const Entry entry(document.at(program), fmt::format("{}, \"{}\"", name, program));
    const bool ranks_there = entry.has("ranks"), line_there = entry.has("line"),
               cause_there = entry.has("cause");
    if (!ranks_there || !line_there || !cause_there) return std::nullopt;
    return FoundMistake{entry.ranks(ranks), entry.line(), entry.cause(causes)};
}

}  // namespace lockstep
