// Finds ranks that disagree about a group. NCCL would hang when the group is made or in
// its first collective, because ranks wait for ranks that make another group or none.

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/rollcall.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// A member's call of a split.
struct Asking {
    int member;
    int rank;
    const SplitRequest* request;
    SourceLine at;
};

using Askings = std::vector<Asking>;

Askings askings_of(const Engine& engine, const Meeting& meeting) {
    Askings askings;
    for (const Posted* posted : meeting.arrived) {
        const Launch& launch = *posted->launch;
        const RankState& state = *engine.ranks()[launch.rank];
        askings.push_back({launch.member, launch.rank, &state.split.asked, launch.at});
    }
    return askings;
}

std::vector<int> ranks_of(const Askings& askings) {
    std::vector<int> ranks;
    for (const Asking& asking : askings)
        ranks.push_back(asking.rank);
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

/// Returns the call, without a colour if the callers pass different colours.
std::string call_of(const Askings& askings) {
    const SplitRequest& first = *askings.front().request;
    const bool colours = std::any_of(askings.begin(), askings.end(), [&](const auto& a) {
        return a.request->color != first.color;
    });
    return first.members.empty() && colours ? fmt::format("split({})", first.name)
                                            : text_of(first);
}

/// "rank 2 calls split(tp, colour 1) at …".
std::string call_text(const Askings& askings) {
    return fmt::format("{} {} {} at {}", ranks_text(ranks_of(askings)),
                       askings.size() == 1 ? "calls" : "call", call_of(askings),
                       askings.front().at.text());
}

/// Returns what each rank expects: "rank 0 makes dp of ranks 0, 2".
std::vector<std::string> expectations_of(const Askings& askings) {
    constexpr std::size_t kListed = 16;
    std::vector<std::string> lines;
    for (const Asking& asking : askings) {
        if (asking.request->members.empty()) continue;
        if (lines.size() == kListed) {
            lines.emplace_back("…");
            break;
        }
        lines.push_back(fmt::format("rank {} makes {} of {}", asking.rank,
                                    asking.request->name,
                                    member_text(asking.request->members)));
    }
    return lines;
}

/// `details` is passed by reference: if it were moved from, GCC 14 would free it twice,
/// because this function never returns.
[[noreturn]] void fail(const Team& team, const Meeting& meeting, const Askings& odd,
                       const Askings& usual, const std::string& field,
                       const std::string& why,
                       const std::vector<std::string>& details = {}) {
    Diagnosis diagnosis = diagnosis_on(team, meeting.first->sequence, "F06");
    diagnosis.sentence =
        fmt::format("{}, but {}: {}", call_text(odd), call_text(usual), why);
    for (const Askings* side : {&odd, &usual})
        diagnosis.parties.push_back(party(ranks_of(*side), call_of(*side),
                                          side->front().at, side == &odd ? field : ""));
    diagnosis.details = details;
    throw FaultError(std::move(diagnosis));
}

/// The axes of a mesh, "pp 2", "dp 2". An axis of size 1 changes no rank's place, so it
/// is left out unless it is the only difference.
using Axes = std::vector<std::string>;

Axes without_ones(Axes axes) {
    std::erase_if(axes, [](const std::string& axis) { return axis.ends_with(" 1"); });
    return axes;
}

/// Returns how the axes of one mesh differ from the usual axes.
std::string mesh_difference(const Axes& odd, const Axes& usual) {
    const auto sorted = [](Axes axes) {
        std::sort(axes.begin(), axes.end());
        return axes;
    };
    if (sorted(odd) != sorted(usual)) return "the axes differ";
    const auto [one, other] = std::mismatch(odd.begin(), odd.end(), usual.begin());
    return fmt::format("the axes are in another order: {} instead of {}",
                       one->substr(0, one->rfind(' ')),
                       other->substr(0, other->rfind(' ')));
}

/// Ranks that make lines or planes of a mesh must describe the same mesh. Otherwise they
/// may confuse two axes, although each group has the members that its ranks expect.
void require_same_mesh(const Team& team, const Meeting& meeting, const Askings& askings) {
    Askings told = askings;
    std::erase_if(told,
                  [](const Asking& asking) { return asking.request->mesh.empty(); });
    const auto sides = sides_of(told, [](const Asking& a, const Asking& b) {
        return a.request->mesh == b.request->mesh;
    });
    if (sides.size() < 2) return;
    const auto given = [](const Askings& side) { return side.front().request->mesh; };
    const bool ones_differ =
        without_ones(given(sides[0])) == without_ones(given(sides[1]));
    const auto shown = [&](const Askings& side) {
        return ones_differ ? given(side) : without_ones(given(side));
    };
    const auto mesh_of = [&](const Askings& side) {
        return fmt::format("{}", fmt::join(shown(side), " x "));
    };
    const auto text = [&](const Askings& side) {
        return fmt::format("{} {} the mesh {} at {}", ranks_text(ranks_of(side)),
                           side.size() == 1 ? "makes" : "make", mesh_of(side),
                           side.front().at.text());
    };
    const std::string why = mesh_difference(shown(sides[1]), shown(sides[0]));
    Diagnosis diagnosis = diagnosis_on(team, meeting.first->sequence, "F06");
    diagnosis.title = "ranks disagree about a mesh";
    diagnosis.sentence =
        fmt::format("{}, but {}: {}", text(sides[1]), text(sides[0]), why);
    diagnosis.cause =
        "The sizes of the axes, slowest first, give a rank its place on the mesh and its "
        "groups. Let all ranks read this list from the same place; it must not depend on "
        "the rank or on its node.";
    for (const Askings* side : {&sides[1], &sides[0]})
        diagnosis.parties.push_back(party(ranks_of(*side), "mesh of " + mesh_of(*side),
                                          side->front().at,
                                          side == &sides[1] ? why : ""));
    throw FaultError(std::move(diagnosis));
}

/// If one rank passes a list that is meant for all ranks, all must pass it.
void require_same_lists(const Team& team, const Meeting& meeting,
                        const Askings& askings) {
    const auto is_list = [](const Asking& asking) { return asking.request->same_on_all; };
    if (std::none_of(askings.begin(), askings.end(), is_list)) return;
    const auto sides = sides_of(askings, [](const Asking& a, const Asking& b) {
        return a.request->same_on_all == b.request->same_on_all &&
               a.request->members == b.request->members &&
               a.request->name == b.request->name;
    });
    if (sides.size() == 1) return;
    const SplitRequest& odd = *sides[1].front().request;
    const SplitRequest& usual = *sides[0].front().request;
    const bool lists = odd.members != usual.members;
    fail(team, meeting, sides[1], sides[0], lists ? "members" : "name",
         fmt::format("every rank of {}, member or not, must make the same groups in the "
                     "same order",
                     team.name));
}

/// Throws FaultError if the members of the new group `made` name it differently. The
/// message names all ranks that use one of these names.
void require_same_name(const Team& team, const Meeting& meeting, const Askings& askings,
                       const Askings& made) {
    const auto same_name = [](const Asking& a, const Asking& b) {
        return a.request->name == b.request->name;
    };
    if (sides_of(made, same_name).size() == 1) return;
    Askings told = askings;
    std::erase_if(told, [&](const Asking& asking) {
        return std::none_of(made.begin(), made.end(), [&](const Asking& member) {
            return member.request->name == asking.request->name;
        });
    });
    const auto sides = sides_of(told, same_name);
    fail(team, meeting, sides[1], sides[0], "name",
         fmt::format("{} are in one new group, which some of them call {} and others {}",
                     ranks_text(ranks_of(made)), sides[1].front().request->name,
                     sides[0].front().request->name));
}

/// Returns the call of a rank that makes `made` differ from what a member `expects`: the
/// rank is missing in `made`, does not belong in it, or expects another group.
const Asking& other_side(const Askings& askings, const std::vector<int>& made,
                         const SplitRequest& expects) {
    for (const Asking& asking : askings) {
        const auto in = [&](const std::vector<int>& members) {
            return std::find(members.begin(), members.end(), asking.member) !=
                   members.end();
        };
        if (in(made) != in(expects.members)) return asking;
    }
    for (const Asking& asking : askings)
        if (std::count(made.begin(), made.end(), asking.member) > 0 &&
            asking.request->members != expects.members)
            return asking;
    return askings.front();
}

/// Returns whether more ranks make groups of `other`'s size than of `one`'s size. Then
/// `one` is wrong.
bool is_outnumbered(const Askings& askings, const Asking& one, const Asking& other) {
    const auto alike = [&](const Asking& as) {
        return std::count_if(askings.begin(), askings.end(), [&](const Asking& asking) {
            return asking.request->members.size() == as.request->members.size();
        });
    };
    return !one.request->members.empty() && !other.request->members.empty() &&
           alike(one) < alike(other);
}

void require_expected(const Team& team, const Meeting& meeting, const Askings& askings,
                      const Askings& made) {
    std::vector<int> members;
    for (const Asking& asking : made)
        members.push_back(asking.member);
    for (const Asking& asking : made) {
        const SplitRequest& request = *asking.request;
        if (request.members.empty() || request.members == members) continue;
        const Asking& other = other_side(askings, members, request);
        const bool expected =
            std::count(request.members.begin(), request.members.end(), other.member) > 0;
        const bool turned = is_outnumbered(askings, other, asking);
        fail(team, meeting, {turned ? other : asking}, {turned ? asking : other},
             "members",
             expected ? fmt::format(
                            "rank {} should be in rank {}'s {}, but makes another group",
                            other.rank, asking.rank, request.name)
                      : fmt::format(
                            "rank {} joins rank {}'s {}, but is not one of its members",
                            other.rank, asking.rank, request.name),
             expectations_of(askings));
    }
}

}  // namespace

void require_same_groups(const Engine& engine, const Team& team, const Meeting& meeting) {
    if (meeting.present < team.size()) return;
    const Askings askings = askings_of(engine, meeting);
    require_same_mesh(team, meeting, askings);
    require_same_lists(team, meeting, askings);
    std::map<int, Askings> by_colour;
    for (const Asking& asking : askings)
        if (asking.request->color != Communicator::kNoColor)
            by_colour[asking.request->color].push_back(asking);
    for (auto& [colour, made] : by_colour)
        std::stable_sort(made.begin(), made.end(), [](const Asking& a, const Asking& b) {
            return a.request->key < b.request->key;
        });
    for (const auto& [colour, made] : by_colour)
        require_same_name(team, meeting, askings, made);
    for (const auto& [colour, made] : by_colour)
        require_expected(team, meeting, askings, made);
}

}  // namespace lockstep::sim
