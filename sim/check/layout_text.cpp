#include "sim/check/layout_text.hpp"

#include <fmt/format.h>

#include "sim/check/team_diagnosis.hpp"

namespace lockstep::sim {

namespace {

using Kind = Layout::Kind;

Diagnosis explain_second(const char* fault, const Layout& twice, SourceLine read_at,
                         const char* reader) {
    const CollectiveOrigin& first = *twice.before->origin;
    const CollectiveOrigin& second = *twice.second;
    Diagnosis diagnosis = diagnosis_on(*second.team, second.sequence, fault);
    diagnosis.parties = {first.party(), second.party()};
    diagnosis.details.push_back(
        fmt::format("{} at {} uses the values.", reader, read_at.text()));
    return diagnosis;
}

}  // namespace

Diagnosis explain_twice(const Layout& twice, SourceLine read_at, const char* reader) {
    const int n = twice.second->team->size();
    if (twice.before->kind == Kind::mixed) {
        Diagnosis diagnosis = explain_second("F27", twice, read_at, reader);
        diagnosis.sentence = fmt::format(
            "what {} summed over {} is summed again: {} added this rank's new "
            "contribution to that sum, and {} adds up both over {} ranks, so that the "
            "old sum counts {} times",
            twice.before->origin->text_with_line(),
            ranks_text(sorted_ranks(*twice.before->team())), twice.before->changed.text(),
            twice.second->text_with_line(), n, n);
        diagnosis.cause =
            "Within one step: reduce once, after its last micro-batch. From one step to "
            "the next: zero the gradients in between.";
        diagnosis.parties.insert(diagnosis.parties.begin() + 1,
                                 {diagnosis.parties.front().ranks,
                                  "adds to what is reduced",
                                  "",
                                  twice.before->changed,
                                  {}});
        return diagnosis;
    }
    Diagnosis diagnosis = explain_second("F22", twice, read_at, reader);
    diagnosis.sentence = fmt::format(
        "{} sums what {} has reduced over the same ranks already: every one of the {} "
        "ranks brings the whole sum, so the values come out {} times too large",
        twice.second->text_with_line(), twice.before->origin->text_with_line(), n, n);
    return diagnosis;
}

Diagnosis explain_summed_shards(const CollectiveOrigin& first,
                                const CollectiveOrigin& second) {
    Diagnosis diagnosis = diagnosis_on(*second.team, second.sequence, "F22");
    diagnosis.sentence = fmt::format(
        "{} sums what {} has summed over the same ranks already: since then each rank "
        "holds another part of the sum, and now these different parts are added up",
        second.text_with_line(), first.text_with_line());
    diagnosis.cause =
        "The shards are parts of the whole sum already: take the second reduction away.";
    diagnosis.parties = {first.party(), second.party()};
    return diagnosis;
}

Diagnosis explain_drift(const Drift& drift) {
    const Team& team = *drift.gradient->team;
    Diagnosis diagnosis = diagnosis_on(team, "F23");
    diagnosis.sentence = fmt::format(
        "{} at {} updates replicas of one parameter ({}) on {} with gradients that "
        "come from each rank's own shard ({}) and were never reduced over {}",
        drift.operation, drift.at.text(), drift.parameter->text_with_line(),
        ranks_text(drift.ranks), drift.gradient->text_with_line(), team.name);
    diagnosis.parties = {{drift.ranks, drift.operation, "", drift.at, {}},
                         drift.gradient->party()};
    return diagnosis;
}

}  // namespace lockstep::sim
