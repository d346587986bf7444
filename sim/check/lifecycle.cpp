#include "sim/check/lifecycle.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/team_diagnosis.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// What it launched; nothing is known of the operations once they are over.
std::string name_of(const Batch& batch) {
    std::string name;
    for (const Posted& posted : batch.posted)
        add_verb(name, posted.operation);
    return name.empty() ? "communication" : name;
}

/// The first that the member launched, of those that can still be waited for.
const Batch* first_open_work(const Engine& engine, const Team& team, int member) {
    const Batch* first = nullptr;  // the list has the newest first
    for (const Batch* batch = engine.batches().in_use(); batch != nullptr;
         batch = batch->pool_next)
        if (batch->team == &team && batch->member == member &&
            batch->number > team.members[member].waited && batch->is_held())
            first = batch;
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
    const auto place = std::find(team.ranks.begin(), team.ranks.end(), rank);
    return team.lifetimes[place - team.ranks.begin()].made_at;
}

}  // namespace

std::optional<Diagnosis> explain_open_works(const Engine& engine, const Team& team,
                                            int member) {
    const Batch* const batch = first_open_work(engine, team, member);
    if (batch == nullptr) return std::nullopt;
    const SourceLine made = team.lifetimes[member].made_at;
    const std::string operation = name_of(*batch);
    Diagnosis diagnosis = diagnosis_on(team, "F31");
    diagnosis.sentence = fmt::format(
        "rank {} lets go of its communicator {}, made at {}, before it has waited for "
        "the {} that it launched there at {}",
        batch->rank, team.name, made.text(), operation, batch->at.text());
    diagnosis.parties.push_back(
        {{batch->rank}, operation + ", not waited for", "", batch->at, {}});
    diagnosis.parties.push_back({{batch->rank}, "made the communicator", "", made, {}});
    return diagnosis;
}

std::optional<Diagnosis> explain_kept(const Engine& engine) {
    for (const auto& team : engine.teams()) {
        if (team->id == 0) continue;  // world is the run's
        const std::vector<int> went = ranks_that(*team, true);
        const std::vector<int> kept = ranks_that(*team, false);
        if (went.empty() || kept.empty()) continue;
        const SourceLine there = made_at(*team, kept.front());
        Diagnosis diagnosis = diagnosis_on(*team, "F31");
        diagnosis.sentence = fmt::format(
            "{} let go of the communicator {}, made at {}, but {} {} it, made at {}, "
            "beyond the end of the program: to end a communicator takes all of its ranks",
            ranks_text(went), team->name, made_at(*team, went.front()).text(),
            ranks_text(kept), kept.size() == 1 ? "keeps" : "keep", there.text());
        diagnosis.parties.push_back(
            {went, "let go of it; made", "", made_at(*team, went.front()), {}});
        diagnosis.parties.push_back({kept, "kept it; made", "", there, {}});
        return diagnosis;
    }
    return std::nullopt;
}

}  // namespace lockstep::sim
