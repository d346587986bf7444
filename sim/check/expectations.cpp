#include "sim/check/expectations.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/origin.hpp"
#include "src/comm/expect.hpp"
#include "src/device/device.hpp"

namespace lockstep::sim {

namespace {

Diagnosis explain(const Rollcall::Roll& roll, const std::vector<Rollcall::Side>& sides) {
    const Rollcall::Claim& usual = sides[0].first();
    const FirstDifference difference = first_difference(roll, sides[1].first(), usual);
    std::vector<ReplicaSide> told;
    for (const Rollcall::Side& side : sides) {
        const Rollcall::Claim& claim = side.first();
        std::string value;
        if (difference.element.empty())
            value = fmt::format("{} {}", claim.shape.text(), name_of(claim.dtype));
        else
            value = &side == &sides[0] ? difference.usual
                                       : first_difference(roll, claim, usual).odd;
        told.push_back({side.ranks(*roll.team), std::move(value), claim.at});
    }
    return replicas_differ(roll.team->name, roll.team->ranks, usual.name, told,
                           difference.element, difference.differing);
}

}  // namespace

Expectations::Expectations() : rollcall_(explain) {}

void Expectations::note(const Team& team, int member, const Tensor& tensor,
                        const std::string& name, SourceLine at, Picoseconds now) {
    Rollcall::Claim claim;
    claim.member = member;
    claim.shape = tensor.shape();
    claim.dtype = tensor.dtype();
    claim.name = name;
    claim.at = at;
    claim.time = now;
    const std::uint64_t number = rollcall_.next_number(team, member);
    Device& device = *tensor.device();
    if (!device.has_numbers()) return rollcall_.note(team, number, std::move(claim));
    HostTensor values = device.peek(tensor, at);
    claim.hash = hash_of_bits(values.data(), values.bytes());
    rollcall_.note(team, number, std::move(claim), [&] { return std::move(values); });
}

void Expectations::run_ended() const {
    const std::vector<const Rollcall::Roll*> rolls = rollcall_.incomplete();
    if (rolls.empty()) return;
    const Rollcall::Roll& roll = *rolls.front();
    const Team& team = *roll.team;
    std::vector<const Rollcall::Claim*> made;
    std::vector<int> callers;
    std::vector<int> absent = team.ranks;
    for (const Rollcall::Claim& claim : roll.claims) {
        const int rank = team.ranks[claim.member];
        callers.push_back(rank);
        std::erase(absent, rank);
        made.push_back(&claim);
    }
    std::sort(callers.begin(), callers.end());
    const Rollcall::Claim& first = **std::min_element(
        made.begin(), made.end(),
        [](const auto* a, const auto* b) { return a->member < b->member; });
    const std::string call = fmt::format("expect_replicated({}) #{} of {}", first.name,
                                         roll.number, team.name);
    Diagnosis diagnosis = diagnosis_on(team, "F07");
    diagnosis.sentence = fmt::format(
        "{} {} {} at {}, but not {}, which {} ended: every rank of {} must call it",
        ranks_text(callers), callers.size() == 1 ? "calls" : "call", call,
        first.at.text(), ranks_text(absent), absent.size() == 1 ? "has" : "have",
        team.name);
    diagnosis.parties = {
        party(callers, call, first.at),
        party(absent, absent.size() == 1 ? "has ended" : "have ended", SourceLine())};
    throw FaultError(std::move(diagnosis));
}

}  // namespace lockstep::sim
