// Explains calls that should match but differ: in a collective (F01 to F05, F13), in a
// sum of different parameters (F26), or on the two sides of a message (F03, F09) or of an
// all_to_all_v (F08).

#include <algorithm>
#include <functional>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/check.hpp"
#include "sim/check/origin.hpp"
#include "sim/check/out_of_step.hpp"
#include "sim/check/rollcall.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

std::string part_text(const Posted& posted) {
    const bool sends = posted.operation.verb == Verb::send;
    const Tensor& part = sends ? posted.operation.input : posted.operation.output;
    const std::int64_t rows = part.shape()[0];
    const std::int64_t count = posted.operation.count;
    return part.shape().dimensions() == 1
               ? fmt::format("{} {}", count, count == 1 ? "element" : "elements")
               : fmt::format("{} {} ({} elements)", rows, rows == 1 ? "row" : "rows",
                             count);
}

std::vector<std::int64_t> counts_of(const Launch& launch, Verb verb) {
    std::vector<std::int64_t> counts;
    for (const Posted& part : launch.posted)
        if (part.operation.verb == verb) counts.push_back(part.operation.count);
    return counts;
}

/// Returns whether a rank's recv_counts equal its send_counts: then the program has
/// probably mixed up the two lists. Counts that are all equal prove nothing.
bool expects_what_it_sends(const Launch& launch) {
    const std::vector<std::int64_t> sent = counts_of(launch, Verb::send);
    return sent == counts_of(launch, Verb::recv) &&
           std::adjacent_find(sent.begin(), sent.end(), std::not_equal_to<>()) !=
               sent.end();
}

/// Returns all counts on one side of the part's call: "rank 0 sends to ranks 0, 1, … of
/// ep in elements: 2, 5, 1".
std::string counts_text(const Posted& posted) {
    constexpr std::size_t kListed = 32;
    const std::vector<std::int64_t> all =
        counts_of(*posted.launch, posted.operation.verb);
    std::string counts;
    for (std::size_t i = 0; i < std::min(all.size(), kListed); ++i)
        counts += fmt::format("{}{}", i == 0 ? "" : ", ", all[i]);
    if (all.size() > kListed) counts += fmt::format(" and {} more", all.size() - kListed);
    const bool sends = posted.operation.verb == Verb::send;
    return fmt::format("rank {} {} ranks 0, 1, … of {} in elements: {}",
                       posted.launch->rank, sends ? "sends to" : "expects from",
                       posted.launch->team->name, counts);
}

/// F08: in an all_to_all_v, a rank sends more or fewer elements than its peer expects.
Diagnosis explain_split_sizes(const Engine& engine, const Posted& send,
                              const Posted& recv) {
    const int from = send.launch->rank;
    const int to = recv.launch->rank;
    Diagnosis diagnosis = diagnosis_on(*send.launch->team, "F08");
    diagnosis.time = std::max(send.launch->opened, recv.launch->opened);
    diagnosis.sentence = fmt::format(
        "rank {}'s all_to_all_v at {} sends {} to rank {}, whose all_to_all_v at {} "
        "expects {} from rank {}",
        from, send.operation.at.text(), part_text(send), to, recv.operation.at.text(),
        part_text(recv), from);
    diagnosis.parties.push_back({{from},
                                 "all_to_all_v",
                                 fmt::format("send_counts[{}]", send.operation.peer),
                                 send.operation.at,
                                 history_of(engine, from, &send)});
    diagnosis.parties.push_back({{to},
                                 "all_to_all_v",
                                 fmt::format("recv_counts[{}]", recv.operation.peer),
                                 recv.operation.at,
                                 history_of(engine, to, &recv)});
    diagnosis.details = {counts_text(send), counts_text(recv)};
    if (!engine.options().numbers)
        diagnosis.cause =
            "This run computes only shapes, so counts cannot come from a download: "
            "route() distributes tokens evenly, and exchange_counts() assumes that all "
            "ranks send the same counts. That is right only if all ranks route the same "
            "number of tokens.";
    if (expects_what_it_sends(*recv.launch))
        diagnosis.details.push_back(
            fmt::format("rank {} expects from each rank the same number that it sends to "
                        "that rank: its recv_counts equal its send_counts",
                        to));
    diagnosis.others = others_of(engine, {from, to});
    return diagnosis;
}

/// Members that passed the same arguments.
struct Side {
    std::vector<const Posted*> members;
    const CommOperation& operation() const { return members.front()->operation; }
    const char* calls() const { return members.size() == 1 ? "calls" : "call"; }
    int lowest_rank() const { return members.front()->launch->rank; }
    std::vector<int> ranks() const {
        std::vector<int> ranks;
        for (const Posted* member : members)
            ranks.push_back(member->launch->rank);
        std::sort(ranks.begin(), ranks.end());
        return ranks;
    }
};

std::vector<Side> sides_in(const Meeting& meeting) {
    std::vector<const Posted*> present(meeting.arrived.begin(), meeting.arrived.end());
    std::erase(present, nullptr);
    std::vector<Side> sides;
    for (auto& side : sides_of(present, [](const Posted*a, const Posted*b) {
             return can_meet(*a->launch->team, a->operation, b->operation);
         }))
        sides.push_back({std::move(side)});
    return sides;
}

struct Difference {
    std::string fault;
    std::string field;
    std::string odd;
    std::string usual;
};

Difference difference(const CommOperation& odd, const CommOperation& usual) {
    if (odd.verb != usual.verb)
        return {"F01", "operation", name_of(odd.verb), name_of(usual.verb)};
    if (odd.peer != usual.peer)
        return {"F05", "root", std::to_string(odd.peer), std::to_string(usual.peer)};
    if (odd.dtype != usual.dtype)
        return {"F03", "type", std::string(name_of(odd.dtype)),
                std::string(name_of(usual.dtype))};
    if (odd.reduction != usual.reduction)
        return {"F04", "reduction", name_of(odd.reduction), name_of(usual.reduction)};
    if (odd.count != usual.count)
        return {"F02", "count", std::to_string(odd.count), std::to_string(usual.count)};
    const Storage::Label &one = *odd.input.labelled(), &other = *usual.input.labelled();
    if (one.name != other.name) return {"F26", "parameter", one.name, other.name};
    return {"F26", "part", one.part, other.part};
}

/// F26: members add up different parameters, or different parts of one parameter.
void tell_what_is_added(Diagnosis& diagnosis, const Side& odd, const Side& usual,
                        const Difference& differs) {
    diagnosis.title = "different parameters are added up";
    diagnosis.cause =
        "The group is not that of one parameter's replicas, or the ranks reduce their "
        "parameters in another order.";
    if (differs.field != "part") return;
    const std::string& group = diagnosis.communicator;
    diagnosis.title = "different parts of a parameter are added up";
    diagnosis.sentence = fmt::format(
        "collective #{} of {} adds up different parts of {}: {} {} {} in {} at {}, but "
        "{} "
        "{} in {} at {}",
        diagnosis.sequence, group, odd.operation().input.label(), ranks_text(odd.ranks()),
        odd.members.size() == 1 ? "brings" : "bring", differs.odd,
        text_of(odd.operation()), odd.operation().at.text(), ranks_text(usual.ranks()),
        differs.usual, text_of(usual.operation()), usual.operation().at.text());
    diagnosis.cause = fmt::format(
        "This parameter is sharded over the ranks of {}, so they hold different numbers, "
        "which must not be added up. Sum gradients over ranks that hold the same part "
        "and have different data: on a mesh these are other axes, such as dp and cp.",
        group);
}

Diagnosis::Party party_of(const Engine& engine, const Side& side,
                          const std::string& differs) {
    const Posted& first = *side.members.front();
    return {side.ranks(),
            text_of(first),
            differs,
            first.line(),
            history_of(engine, side.lowest_rank(), &first),
            first.operation.at};
}

/// Adds the line that chose size and type: "rank 0's 9 x f32 were made at train.cpp:17".
/// Adds nothing if the call itself makes the buffer, or if there is no buffer.
void add_maker(Diagnosis& diagnosis, const Posted& posted) {
    const CommOperation& operation = posted.operation;
    const bool takes_input =
        operation.input &&
        (operation.input.elements() == operation.count || !operation.output);
    const Tensor& buffer = takes_input ? operation.input : operation.output;
    if (!buffer) return;
    const SourceLine made_at = buffer.storage()->allocated_at;
    if (made_at.line == 0 || made_at == operation.at) return;
    diagnosis.details.push_back(fmt::format(
        "rank {}'s {} x {} {} made at {}", posted.launch->rank, operation.count,
        name_of(operation.dtype),
        buffer.bytes() == buffer.storage()->bytes ? "were"
                                                  : "are a part of a tensor that was",
        made_at.text()));
}

/// Returns why these are not one call of the program; empty if they are one call, with
/// arguments that differ. Lines alone do not tell that if ranks take turns as a root, if
/// their reductions differ, or if they call different verbs; then a rank must have made
/// the other side's call before.
std::string why_out_of_step(const Engine& engine, const Side& odd, const Side& usual,
                            const Difference& differs) {
    const auto caller = [](const Side& side) {
        return Caller{side.ranks(), side.members.front()};
    };
    const auto made = [&](const Side& one, const Side& other) {
        return engine.ranks()[one.lowest_rank()]->lines.times(
                   other.members.front()->line()) > 0;
    };
    const Posted &here = *odd.members.front(), &there = *usual.members.front();
    const bool other_lines = !(here.line() == there.line());
    const bool is_certain = here.launch->step != there.launch->step ||
                            (other_lines && (made(odd, usual) || made(usual, odd)));
    if (differs.fault == "F26" && !is_certain) return "";
    if (!is_certain && other_lines && differs.field != "count" && differs.field != "type")
        return "";
    return out_of_step_text(engine, caller(odd), caller(usual));
}

Diagnosis explain_meeting(const Engine& engine, const Posted& posted) {
    const Team& team = *posted.launch->team;
    const std::vector<Side> sides = sides_in(meeting_of(posted));
    const Side& usual = sides[0];
    const Side& odd = sides[1];
    Difference differs = difference(odd.operation(), usual.operation());
    const std::string out_of_step = why_out_of_step(engine, odd, usual, differs);
    if (!out_of_step.empty()) differs.fault = "F13";

    Diagnosis diagnosis = diagnosis_on(team, differs.fault);
    diagnosis.sequence = static_cast<std::int64_t>(posted.sequence);
    const auto call = [](const Side& side) {
        const Posted& first = *side.members.front();
        return fmt::format("{} {} {} at {}", ranks_text(side.ranks()), side.calls(),
                           call_text(first), where(first));
    };
    diagnosis.sentence = fmt::format(
        "collective #{} of {}: {}, but {}: {}", posted.sequence, team.name, call(odd),
        call(usual),
        out_of_step.empty()
            ? fmt::format("{} {} against {}", differs.field, differs.odd, differs.usual)
            : out_of_step);
    std::vector<int> told;
    for (const Side& side : sides) {
        const bool is_usual = &side == &usual;
        diagnosis.parties.push_back(party_of(
            engine, side,
            is_usual ? ""
                     : fmt::format("{} {}", differs.field,
                                   difference(side.operation(), usual.operation()).odd)));
        for (const Posted* member : side.members) {
            told.push_back(member->launch->rank);
            diagnosis.time = std::max(diagnosis.time, member->launch->opened);
        }
    }
    if (differs.fault == "F26") tell_what_is_added(diagnosis, odd, usual, differs);
    if (differs.fault == "F02" || differs.fault == "F03")
        for (const Side* side : {&odd, &usual})
            add_maker(diagnosis, *side->members.front());
    diagnosis.others = others_of(engine, told);
    tell_first_out_of_step(engine, team, diagnosis);
    return diagnosis;
}

Diagnosis explain_message(const Engine& engine, const Posted& posted) {
    const bool sends = posted.operation.verb == Verb::send;
    const Posted& send = sends ? posted : *posted.partner;
    const Posted& recv = sends ? *posted.partner : posted;
    const bool counts = send.operation.count != recv.operation.count;
    if (counts && send.operation.all_to_all_v && recv.operation.all_to_all_v)
        return explain_split_sizes(engine, send, recv);
    const auto differing = [&](const CommOperation& operation) {
        return counts ? fmt::format("count {}", operation.count)
                      : fmt::format("type {}", name_of(operation.dtype));
    };
    Diagnosis diagnosis = diagnosis_on(*send.launch->team, counts ? "F09" : "F03");
    diagnosis.time = std::max(send.launch->opened, recv.launch->opened);
    diagnosis.sentence = fmt::format(
        "rank {} sends {} x {} at {}, but rank {} receives {} x {} at {}: {} against {}",
        send.launch->rank, send.operation.count, name_of(send.operation.dtype),
        where(send), recv.launch->rank, recv.operation.count,
        name_of(recv.operation.dtype), where(recv), differing(send.operation),
        differing(recv.operation));
    for (const Posted* side : {&send, &recv})
        diagnosis.parties.push_back({{side->launch->rank},
                                     text_of(*side),
                                     differing(side->operation),
                                     side->line(),
                                     history_of(engine, side->launch->rank, side),
                                     side->operation.at});
    for (const Posted* side : {&send, &recv})
        add_maker(diagnosis, *side);
    diagnosis.others = others_of(engine, {send.launch->rank, recv.launch->rank});
    return diagnosis;
}

}  // namespace

Diagnosis explain_difference(const Engine& engine, const Posted& posted) {
    return is_point_to_point(posted.operation.verb) ? explain_message(engine, posted)
                                                    : explain_meeting(engine, posted);
}

}  // namespace lockstep::sim
