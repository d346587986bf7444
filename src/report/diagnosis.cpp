#include "src/report/diagnosis.hpp"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/report/wrap.hpp"

namespace lockstep {

namespace {

constexpr std::size_t kMostRanges = 10;
constexpr std::size_t kMostHistory = 5;

/// "1–3" for each run of ranks that follow one another.
std::vector<std::string> ranges_of(std::vector<int> ranks) {
    std::ranges::sort(ranks);
    ranks.erase(std::unique(ranks.begin(), ranks.end()), ranks.end());
    std::vector<std::string> ranges;
    for (std::size_t begin = 0; begin < ranks.size();) {
        std::size_t end = begin + 1;
        while (end < ranks.size() && ranks[end] == ranks[end - 1] + 1)
            ++end;
        ranges.push_back(end - begin == 1
                             ? std::to_string(ranks[begin])
                             : fmt::format("{}–{}", ranks[begin], ranks[end - 1]));
        begin = end;
    }
    return ranges;
}

std::string heading(const Diagnosis& diagnosis) {
    return diagnosis.fault.empty() ? diagnosis.title
                                   : diagnosis.fault + ": " + diagnosis.title;
}

bool has_place(const SourceLine& at) {
    return at.line > 0;
}

/// Parties that do the same at the same line become one, with the first one's history.
std::vector<Diagnosis::Party> grouped(const std::vector<Diagnosis::Party>& parties) {
    std::vector<Diagnosis::Party> groups;
    for (const Diagnosis::Party& party : parties) {
        const auto same =
            std::ranges::find_if(groups, [&](const Diagnosis::Party& group) {
                return group.operation == party.operation &&
                       group.differs == party.differs && group.at == party.at;
            });
        if (same == groups.end()) {
            groups.push_back(party);
        } else {
            same->ranks.insert(same->ranks.end(), party.ranks.begin(), party.ranks.end());
        }
    }
    return groups;
}

/// "rank 2: all_reduce(sum, 500 x f32) at lessons/lesson.cpp:31   <-- count", and below
/// it what the rank did before.
std::string party_text(const Diagnosis::Party& party, int width) {
    std::string line = ranks_text(party.ranks) + ": " + party.operation;
    if (has_place(party.at)) line += " at " + party.at.text();
    if (!party.differs.empty()) line += "  <-- differs: " + party.differs;
    std::string text = wrapped(line, width, "  ", "      ");
    if (party.history.empty()) return text;
    const std::size_t skipped =
        party.history.size() - std::min(party.history.size(), kMostHistory);
    const std::vector<std::string> shown(
        party.history.begin() + static_cast<std::ptrdiff_t>(skipped),
        party.history.end());
    const std::string whose =
        party.ranks.size() > 1 ? fmt::format("rank {} before that: ", party.ranks.front())
                               : "before that: ";
    return text + wrapped(whose + (skipped > 0 ? "..., " : "") +
                              fmt::format("{}", fmt::join(shown, ", ")),
                          width, "      ", "        ");
}

std::string place_text(const Diagnosis& diagnosis) {
    std::string text;
    if (!diagnosis.communicator.empty()) {
        text = "communicator " + diagnosis.communicator;
        if (!diagnosis.members.empty()) text += " of " + ranks_text(diagnosis.members);
        if (diagnosis.sequence >= 0)
            text += fmt::format(", operation #{}", diagnosis.sequence);
    }
    if (diagnosis.time < 0) return text;
    return text + (text.empty() ? "" : ", ") + "virtual time " +
           time_text(diagnosis.time);
}

}  // namespace

std::string ranks_text(const std::vector<int>& ranks) {
    std::vector<std::string> ranges = ranges_of(ranks);
    if (ranges.empty()) return "no rank";
    std::string more;
    if (ranges.size() > kMostRanges + 1) {
        more = fmt::format(" and {} ranges more", ranges.size() - kMostRanges);
        ranges.resize(kMostRanges);
    }
    const bool one = ranges.size() == 1 && ranges[0].find("–") == std::string::npos;
    return fmt::format("{} {}{}", one ? "rank" : "ranks", fmt::join(ranges, ", "), more);
}

std::string Diagnosis::text(int width) const {
    std::string text = wrapped(heading(*this), width) + wrapped(sentence, width) + "\n";
    text += wrapped(place_text(*this), width, "  ", "    ");
    for (const Party& party : grouped(parties))
        text += party_text(party, width);
    if (!others.empty()) {
        text += "\n" + wrapped("What the others are doing:", width, "  ", "  ");
        for (const Party& party : grouped(others))
            text += party_text(party, width);
    }
    if (!cause.empty()) text += "\n" + wrapped("Likely cause: " + cause, width);
    return text;
}

FaultError::FaultError(Diagnosis diagnosis)
    : std::runtime_error(heading(diagnosis) + "\n" + diagnosis.sentence),
      diagnosis_(std::move(diagnosis)) {}

}  // namespace lockstep
