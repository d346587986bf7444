// Finds what is left when ranks end or destroy communicators: Work that was never waited
// for (F19), communicators that only some of their ranks have destroyed (F31).

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// Launches that ranks never waited for, all from one line of the program.
struct Forgotten {
    const Team* team = nullptr;
    const Unwaited* first = nullptr;
    std::set<int> ranks;
};

/// Returns forgotten launches by line, sorted by rank, then communicator, then launch.
std::vector<Forgotten> forgotten_in(const Engine& engine, std::size_t& count) {
    struct Entry {
        int rank;
        const Team* team;
        const Unwaited* unwaited;
    };
    std::vector<Entry> entries;
    for (const auto& team : engine.teams()) {
        for (std::size_t member = 0; member < team->members.size(); ++member) {
            const auto& unwaited = team->members[member].unwaited;
            if (unwaited == nullptr) continue;
            for (const Unwaited& entry : *unwaited)
                entries.push_back({team->ranks[member], team.get(), &entry});
        }
    }
    std::stable_sort(entries.begin(), entries.end(),
                     [](const Entry& a, const Entry& b) { return a.rank < b.rank; });
    count = entries.size();

    std::vector<Forgotten> lines;
    std::map<std::string, std::size_t> place;
    for (const Entry& entry : entries) {
        const auto [found, is_new] =
            place.emplace(entry.unwaited->operation.at.text(), lines.size());
        if (is_new) lines.push_back({entry.team, entry.unwaited, {}});
        lines[found->second].ranks.insert(entry.rank);
    }
    return lines;
}

std::string text_of(const Forgotten& line) {
    const CommRequest& operation = line.first->operation;
    std::string text = text_of(operation);
    if (!is_point_to_point(operation.verb))
        text += fmt::format(" #{}", line.first->sequence);
    if (!is_point_to_point(operation.verb) || line.team->name != "world")
        text += fmt::format(" of {}", line.team->name);
    if (line.first->operations > 1)
        text += fmt::format(" and {} more of its group", line.first->operations - 1);
    if (line.ranks.size() > 1)
        text += fmt::format(" (rank {}'s; the others' likewise)", *line.ranks.begin());
    return text;
}

}  // namespace

std::optional<Diagnosis> explain_unwaited(const Engine& engine) {
    // A rank that is stuck may still wait for its launches.
    const auto& still = engine.options().stands_still;
    if (std::find(still.begin(), still.end(), true) != still.end()) return std::nullopt;
    std::size_t count = 0;
    const std::vector<Forgotten> lines = forgotten_in(engine, count);
    if (lines.empty()) return std::nullopt;

    const Forgotten& first = lines.front();
    Diagnosis diagnosis = diagnosis_on(*first.team, "F19");
    if (!is_point_to_point(first.first->operation.verb))
        diagnosis.sequence = static_cast<std::int64_t>(first.first->sequence);
    for (const Forgotten& line : lines)
        diagnosis.parties.push_back(party({line.ranks.begin(), line.ranks.end()},
                                          text_of(line) + ", never waited for",
                                          line.first->operation.at));
    diagnosis.sentence = fmt::format(
        "{} launched {} at {} and ended without waiting for it",
        ranks_text(diagnosis.parties.front().ranks),
        lockstep::text_of(first.first->operation), first.first->operation.at.text());
    if (count > 1)
        diagnosis.sentence += fmt::format(
            "; {} such launches from {} of the program were never waited for", count,
            lines.size() == 1 ? "this one line" : fmt::format("{} lines", lines.size()));
    return diagnosis;
}

namespace {

/// Returns the names of the launch's operations. Operations that are done have none.
std::string name_of(const Launch& launch) {
    std::string name;
    for (const Posted& posted : launch.posted)
        add_verb(name, posted.operation);
    return name.empty() ? "communication" : name;
}

/// Returns the member's first launch that can still be waited for.
const Launch* first_open_work(const Engine& engine, const Team& team, int member) {
    const Launch* first = nullptr;
    for (const Launch* launch : engine.launches().all())
        if (launch->is_held() && launch->team == &team && launch->member == member &&
            launch->number > team.members[member].waited &&
            (first == nullptr || launch->number < first->number))
            first = launch;
    return first;
}

std::vector<int> ranks_that(const Team& team, bool went) {
    std::vector<int> ranks;
    for (std::size_t member = 0; member < team.members.size(); ++member)
        if (team.lifetimes[member].went == went) ranks.push_back(team.ranks[member]);
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

SourceLine made_at(const Team& team, int rank) {
    return team.lifetimes[team.member_of(rank)].made_at;
}

}  // namespace

std::optional<Diagnosis> explain_open_works(const Engine& engine, const Team& team,
                                            int member) {
    const Launch* const launch = first_open_work(engine, team, member);
    if (launch == nullptr) return std::nullopt;
    const SourceLine made = team.lifetimes[member].made_at;
    const std::string operation = name_of(*launch);
    Diagnosis diagnosis = diagnosis_on(team, "F31");
    diagnosis.sentence = fmt::format(
        "rank {} destroys its communicator {}, made at {}, before it has waited for the "
        "{} that it launched on it at {}",
        launch->rank, team.name, made.text(), operation, launch->at.text());
    diagnosis.parties = {
        party({launch->rank}, operation + ", not waited for", launch->at),
        party({launch->rank}, "made the communicator", made)};
    return diagnosis;
}

std::optional<Diagnosis> explain_kept(const Engine& engine) {
    for (const auto& team : engine.teams()) {
        if (team->id == 0) continue;  // world belongs to the run
        const std::vector<int> went = ranks_that(*team, true);
        const std::vector<int> kept = ranks_that(*team, false);
        if (went.empty() || kept.empty()) continue;
        const SourceLine there = made_at(*team, kept.front());
        Diagnosis diagnosis = diagnosis_on(*team, "F31");
        diagnosis.sentence = fmt::format(
            "{} destroyed the communicator {}, made at {}, but {} still {} it, made at "
            "{}, at the end of the program: all ranks of a communicator must destroy it",
            ranks_text(went), team->name, made_at(*team, went.front()).text(),
            ranks_text(kept), kept.size() == 1 ? "has" : "have", there.text());
        diagnosis.parties = {
            party(went, "destroyed it; made", made_at(*team, went.front())),
            party(kept, "kept it; made", there)};
        return diagnosis;
    }
    return std::nullopt;
}

}  // namespace lockstep::sim
