#include "sim/check/unwaited.hpp"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "sim/check/team_diagnosis.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

void note_unwaited(Member& member, const Batch& batch) {
    if (batch.posted.empty()) return;
    const Posted& first = batch.posted.front();
    if (member.unwaited == nullptr)
        member.unwaited = std::make_unique<std::vector<Unwaited>>();
    Unwaited& entry = member.unwaited->emplace_back(
        Unwaited{batch.number, first.sequence, batch.posted.size(), first.operation});
    entry.operation.input = entry.operation.output = Tensor();
}

namespace {

/// What ranks forgot that was launched at one line of the program.
struct Forgotten {
    const Team* team = nullptr;
    const Unwaited* first = nullptr;
    std::set<int> ranks;
};

/// By line, in the order of ranks, communicators and program.
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
    const CommOperation& operation = line.first->operation;
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
    // One that stands still may yet wait.
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
        diagnosis.parties.push_back({{line.ranks.begin(), line.ranks.end()},
                                     text_of(line) + ", never waited for",
                                     "",
                                     line.first->operation.at,
                                     {}});
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

}  // namespace lockstep::sim
