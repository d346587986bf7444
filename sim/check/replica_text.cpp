#include "sim/check/replica_text.hpp"

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/contents.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/team_diagnosis.hpp"

namespace lockstep::sim {

namespace {

using Claim = Rollcall::Claim;
using Roll = Rollcall::Roll;
using Side = Rollcall::Side;

/// What made the byte at `place` of a claim's values.
const Claim::Maker* maker_at(const Claim& claim, std::int64_t place) {
    for (const Claim::Maker& maker : claim.makers)
        if (maker.begin <= place && place < maker.end) return &maker;
    return nullptr;
}

std::string made_text(const Claim::Maker* maker) {
    return maker == nullptr
               ? ""
               : fmt::format(", written by {} at {}", maker->name, maker->at.text());
}

/// Parameters of the sides, where they are not of one shape, differ in no element.
std::int64_t differing_byte(const Roll& roll, const Claim& a, const Claim& b) {
    const HostTensor* const mine = roll.values_of(a);
    const HostTensor* const usual = roll.values_of(b);
    if (mine == nullptr || usual == nullptr || !(a.shape == b.shape)) return 0;
    return std::max<std::int64_t>(difference_in_bits(*mine, *usual).first, 0) *
           bytes_of(a.dtype);
}

/// "3 on ranks 0, 2–3 (sgd at train.cpp:12)".
std::string gradient_text(const Roll& roll, const Side& side, const std::string& value) {
    return fmt::format("{} on {} ({} at {})", value.empty() ? "one" : value,
                       ranks_text(side.ranks(*roll.team)), side.first().by,
                       side.first().at.text());
}

/// Where the two gradients come from, as far as that is known.
std::string reductions_text(const Roll& roll, const Side& usual, const Side& odd) {
    const std::string& one = usual.first().reduced;
    const std::string& other = odd.first().reduced;
    if (one.empty() && other.empty())
        return fmt::format("nothing is known to have reduced it over {}",
                           roll.team->name);
    if (one == other) return fmt::format("it was reduced by {}", one);
    const auto text = [&](const Side& side) {
        const std::string& by = side.first().reduced;
        return fmt::format("{} by {}", ranks_text(side.ranks(*roll.team)),
                           by.empty() ? "nothing that is known" : by);
    };
    return fmt::format("it was reduced on {}, but on {}", text(odd), text(usual));
}

bool differ_by_rounding(const Roll& roll, const Side& usual, const Side& odd) {
    const HostTensor* const one = roll.values_of(usual.first());
    const HostTensor* const other = roll.values_of(odd.first());
    return one != nullptr && other != nullptr && one->shape() == other->shape() &&
           !differ_by_more_than_rounding(*one, *other);
}

constexpr const char* kParts =
    "Something between the loss and this gradient is not the same on all of these ranks. "
    "Tensor parallelism: an all-reduce is left out, f's (backward, where a "
    "column-parallel layer begins) or g's (forward, where a row-parallel layer ends). "
    "Sequence parallelism: each rank has seen its tokens only; call complete_gradients() "
    "after the last backward. Else: sum the gradient over these ranks before this line.";
constexpr const char* kRounding =
    "The gradients differ by rounding only, as sums do that are taken in another order. "
    "Replicas drift apart by that, too: let all ranks use one result; that of an "
    "all_reduce has the same bits on all of them.";

}  // namespace

Diagnosis explain_drifted(const Roll& roll, const std::vector<Side>& sides) {
    const Team& team = *roll.team;
    const Claim& usual = sides[0].first();
    const Claim& odd = sides[1].first();
    const FirstDifference difference = first_difference(roll, odd, usual);
    const std::int64_t place = differing_byte(roll, odd, usual);
    const auto holds = [&](const Side& side, const std::string& value) {
        const std::vector<int> ranks = side.ranks(team);
        return fmt::format("{} {} {}{}", ranks_text(ranks),
                           ranks.size() == 1 ? "holds" : "hold",
                           value.empty() ? side.first().shape.text() : value,
                           made_text(maker_at(side.first(), place)));
    };
    Diagnosis diagnosis = diagnosis_on(team, "F24");
    diagnosis.sentence = fmt::format(
        "before step {} the replicas of {} over {} differ{}{}: {}, but {}; {} {}",
        usual.step, usual.name, team.name, difference.element.empty() ? "" : " in ",
        difference.element, holds(sides[1], difference.odd),
        holds(sides[0], difference.usual),
        usual.declared_at.line > 0
            ? fmt::format("they were declared replicas at {}, and all step at",
                          usual.declared_at.text())
            : "then all step with the same gradient at",
        usual.at.text());
    if (!difference.differing.empty()) diagnosis.details.push_back(difference.differing);
    for (const Side& side : sides) {
        const Claim& claim = side.first();
        const Claim::Maker* const maker = maker_at(claim, place);
        const std::string value = &side == &sides[0]
                                      ? difference.usual
                                      : first_difference(roll, claim, usual).odd;
        diagnosis.parties.push_back(
            {side.ranks(team),
             maker == nullptr ? fmt::format("update of {}", claim.name)
                              : fmt::format("{} wrote {}", maker->name, claim.name),
             value,
             maker == nullptr ? claim.at : maker->at,
             {}});
    }
    return diagnosis;
}

Diagnosis explain_own_gradients(const Roll& roll, const std::vector<Side>& sides) {
    const Team& team = *roll.team;
    const Side& usual = sides[0];
    const Side& odd = sides[1];
    const FirstDifference difference = first_difference(roll, odd.first(), usual.first());
    Diagnosis diagnosis = diagnosis_on(team, "F23");
    diagnosis.sentence = fmt::format(
        "in step {} {} hold the same {}, declared a replica over {} at {}, but step with "
        "gradients of their own: {} of the gradient is {}, but {}; {}",
        usual.first().step, ranks_text(sorted_ranks(team)), usual.first().name, team.name,
        usual.first().declared_at.text(), difference.element,
        gradient_text(roll, usual, difference.usual),
        gradient_text(roll, odd, difference.odd), reductions_text(roll, usual, odd));
    diagnosis.cause = differ_by_rounding(roll, usual, odd) ? kRounding : kParts;
    if (!difference.differing.empty()) diagnosis.details.push_back(difference.differing);
    if (sides.size() > 2) {
        std::vector<int> rest;
        for (std::size_t i = 2; i < sides.size(); ++i)
            for (const int rank : sides[i].ranks(team))
                rest.push_back(rank);
        std::sort(rest.begin(), rest.end());
        diagnosis.details.push_back(fmt::format("{} {} yet others", ranks_text(rest),
                                                rest.size() == 1 ? "has" : "have"));
    }
    for (const Side* side : {&usual, &odd})
        diagnosis.parties.push_back(
            {side->ranks(team),
             fmt::format("{} of {}", side->first().by, side->first().name),
             "its own gradient",
             side->first().at,
             {}});
    return diagnosis;
}

}  // namespace lockstep::sim
