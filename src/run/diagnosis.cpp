#include "src/run/diagnosis.hpp"

#include <algorithm>
#include <map>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "src/text/numbers.hpp"
#include "src/text/wrap.hpp"

namespace lockstep {

namespace {

constexpr std::size_t kMostRanges = 10;
constexpr std::size_t kMostHistory = 5;

std::string heading(const Diagnosis& diagnosis) {
    return diagnosis.fault.empty() ? diagnosis.title
                                   : diagnosis.fault + ": " + diagnosis.title;
}

bool has_place(const SourceLine& at) {
    return at.line > 0;
}

/// Joins parties that do the same at the same line. Keeps the first party's history.
std::vector<Diagnosis::Party> grouped(const std::vector<Diagnosis::Party>& parties) {
    std::vector<Diagnosis::Party> groups;
    for (const Diagnosis::Party& party : parties) {
        const auto same =
            std::ranges::find_if(groups, [&](const Diagnosis::Party& group) {
                return group.operation == party.operation &&
                       group.differs == party.differs && group.at == party.at &&
                       group.inside == party.inside;
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
/// it the rank's history.
std::string party_text(const Diagnosis::Party& party, int width) {
    std::string line = ranks_text(party.ranks) + ": " + party.operation;
    if (has_place(party.at)) line += " at " + place_text(party.at, party.inside);
    if (!party.differs.empty()) line += "  <-- differs: " + party.differs;
    std::string text = wrapped(line, width, "  ", "      ");
    if (party.history.empty()) return text;
    const std::size_t skipped =
        party.history.size() - std::min(party.history.size(), kMostHistory);
    const std::vector<std::string> shown(
        party.history.begin() + static_cast<std::ptrdiff_t>(skipped),
        party.history.end());
    const std::string whose =
        party.ranks.size() > 1
            ? fmt::format("rank {}'s last calls: ", party.ranks.front())
            : "its last calls: ";
    return text + wrapped(whose + (skipped > 0 ? "..., " : "") +
                              fmt::format("{}", fmt::join(shown, ", ")),
                          width, "      ", "        ");
}

/// If a rank has several lines, its history is shown only once.
void drop_repeated_histories(std::vector<Diagnosis::Party>& groups) {
    for (std::size_t i = 0; i < groups.size(); ++i)
        for (std::size_t j = i + 1; j < groups.size(); ++j)
            if (groups[i].ranks == groups[j].ranks &&
                groups[i].history == groups[j].history)
                groups[j].history.clear();
}

/// Shows the first parties in full, and only the ranks of the others.
std::string parties_text(const std::vector<Diagnosis::Party>& parties, int width) {
    constexpr std::size_t kMostParties = 8;
    std::vector<Diagnosis::Party> groups = grouped(parties);
    if (groups.size() <= kMostParties) drop_repeated_histories(groups);
    std::string text;
    std::vector<int> rest;
    for (std::size_t i = 0; i < groups.size(); ++i) {
        if (i < kMostParties || groups.size() == kMostParties + 1)
            text += party_text(groups[i], width);
        else
            rest.insert(rest.end(), groups[i].ranks.begin(), groups[i].ranks.end());
    }
    if (rest.empty()) return text;
    return text + wrapped(ranks_text(rest) + ": each does something different", width,
                          "  ", "      ");
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

/// "In a circle: rank 0 → rank 1 → rank 0". Empty if there is no circle. Empty, too, if
/// the parties differ in one call, because their lines show the difference.
std::string circle_text(const Diagnosis& diagnosis) {
    constexpr std::size_t kMostLinks = 6;
    const bool differ = std::ranges::any_of(
        diagnosis.parties, [](const auto& party) { return !party.differs.empty(); });
    const std::vector<std::size_t> circle = circle_of(diagnosis.waits);
    if (differ || circle.empty()) return "";
    const std::string first = ranks_text(diagnosis.waits[circle.front()].from);
    if (circle.size() == 1)
        return fmt::format("In a circle: {} {}", first,
                           diagnosis.waits[circle.front()].from.size() == 1
                               ? "waits for itself"
                               : "wait for one another");
    std::string text = "In a circle: ";
    for (std::size_t i = 0; i < std::min(circle.size(), kMostLinks); ++i)
        text += ranks_text(diagnosis.waits[circle[i]].from) + " → ";
    if (circle.size() > kMostLinks)
        text += fmt::format("… {} more … → ", circle.size() - kMostLinks);
    return text + first;
}

}  // namespace

namespace {

/// Finds circles. Each wait leads to the wait of the first rank in its `to`.
class Circles {
  public:
    explicit Circles(const std::vector<Diagnosis::Wait>& waits)
        : waits_(waits), place_(waits.size()), walk_(waits.size(), kNone) {
        for (std::size_t i = 0; i < waits.size(); ++i)
            for (const int rank : waits[i].from)
                wait_of_[rank] = i;
    }

    /// Returns the circle to which the wait `start` leads. Empty if it leads to a rank
    /// that does not wait, or to a wait that an earlier start has reached.
    std::vector<std::size_t> from(std::size_t start) {
        std::vector<std::size_t> path;
        for (std::size_t at = start; at != kNone; at = next(at)) {
            if (walk_[at] == start) {
                path.erase(path.begin(),
                           path.begin() + static_cast<std::ptrdiff_t>(place_[at]));
                return path;
            }
            if (walk_[at] != kNone) break;
            walk_[at] = start;
            place_[at] = path.size();
            path.push_back(at);
        }
        return {};
    }

  private:
    static constexpr std::size_t kNone = -1;

    std::size_t next(std::size_t at) const {
        const std::vector<int>& to = waits_[at].to;
        const bool open =
            std::ranges::any_of(to, [&](int rank) { return !wait_of_.contains(rank); });
        return to.empty() || open ? kNone : wait_of_.at(to.front());
    }

    const std::vector<Diagnosis::Wait>& waits_;
    std::map<int, std::size_t> wait_of_;  ///< by rank
    std::vector<std::size_t> place_;      ///< a wait's index on the path
    std::vector<std::size_t> walk_;       ///< the start whose path reached a wait
};

}  // namespace

std::vector<std::size_t> circle_of(const std::vector<Diagnosis::Wait>& waits) {
    // Prefers waits of single ranks: if several wait, maybe only some are in the circle.
    const auto alone = [&](std::size_t i) { return waits[i].from.size() == 1; };
    Circles circles(waits);
    for (std::size_t i = 0; i < waits.size(); ++i) {
        if (!alone(i)) continue;
        std::vector<std::size_t> circle = circles.from(i);
        if (!circle.empty() && std::ranges::all_of(circle, alone)) return circle;
    }
    return waits.empty() ? std::vector<std::size_t>{} : Circles(waits).from(0);
}

std::string place_text(SourceLine at, SourceLine inside) {
    if (inside.line == 0 || inside == at) return at.text();
    return fmt::format("{} ({})", at.text(), inside.text());
}

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
    text += parties_text(parties, width);
    text += wrapped(circle_text(*this), width, "  ", "      ");
    if (!details.empty()) text += "\n";
    for (const std::string& line : details)
        text += wrapped(line, width, "  ", "      ");
    if (!others.empty()) {
        text += "\n" + wrapped("What the others are doing:", width, "  ", "  ");
        text += parties_text(others, width);
    }
    if (!cause.empty()) text += "\n" + wrapped("Likely cause: " + cause, width);
    if (!page.empty())
        text +=
            wrapped(fmt::format("More: lockstep fault {}, or {}", fault, page), width);
    return text;
}

FaultError::FaultError(Diagnosis diagnosis)
    : std::runtime_error(heading(diagnosis) + "\n" + diagnosis.sentence),
      diagnosis_(std::move(diagnosis)) {}

}  // namespace lockstep
