#include "src/text/names.hpp"

#include <algorithm>
#include <numeric>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/text/utf8.hpp"

namespace lockstep {

namespace {

/// Returns Levenshtein's distance: the fewest insertions, deletions and substitutions
/// between the two.
std::size_t edit_distance(std::string_view a, std::string_view b) {
    std::vector<std::size_t> row(b.size() + 1);
    std::iota(row.begin(), row.end(), std::size_t{0});
    for (std::size_t i = 1; i <= a.size(); ++i) {
        std::size_t diagonal = row[0];
        row[0] = i;
        for (std::size_t j = 1; j <= b.size(); ++j) {
            const std::size_t above = row[j];
            const std::size_t substituted = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
            row[j] = std::min({above + 1, row[j - 1] + 1, substituted});
            diagonal = above;
        }
    }
    return row.back();
}

}  // namespace

std::optional<std::string> nearest(std::string_view typed,
                                   const std::vector<std::string>& names) {
    constexpr std::size_t kShortestPart = 4;
    std::optional<std::string> best;
    std::size_t best_distance = typed.size() / 3 + 2;
    for (const std::string& name : names) {
        const bool part = typed.size() >= kShortestPart && name.find(typed) != name.npos;
        const std::size_t distance = part ? 1 : edit_distance(typed, name);
        if (distance >= best_distance || distance >= name.size()) continue;
        best = name;
        best_distance = distance;
    }
    return best;
}

std::string did_you_mean(std::string_view typed, const std::vector<std::string>& names) {
    const std::optional<std::string> name = nearest(typed, names);
    return name ? "; did you mean " + *name + "?" : "";
}

std::string no_such(const std::string& kind, std::string_view typed,
                    const std::vector<std::string>& names) {
    std::string hint = did_you_mean(typed, names);
    if (hint.empty())
        hint = fmt::format("; the {}s are {}", kind, fmt::join(names, ", "));
    return fmt::format("there is no {} '{}'{}", kind, printable(typed), hint);
}

std::string either(const std::vector<std::string>& names) {
    std::string text;
    for (std::size_t i = 0; i < names.size(); ++i) {
        if (i > 0) text += i + 1 == names.size() ? " or " : ", ";
        text += names[i];
    }
    return text;
}

std::vector<std::string> split_at_commas(std::string_view text) {
    std::vector<std::string> words{""};
    for (const char c : text)
        if (c == ',')
            words.emplace_back();
        else
            words.back() += c;
    return words;
}

}  // namespace lockstep
