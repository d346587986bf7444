#include "sim/check/activity.hpp"

#include <algorithm>
#include <exception>
#include <map>
#include <numeric>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// If a device is full (F30), adds how much is in use on the other devices.
void add_memory_of_others(const Engine& engine, Diagnosis& diagnosis) {
    constexpr std::size_t kListed = 8;
    const int full = diagnosis.parties.front().ranks.front();
    // Ranks with the same amounts form one group. Groups are sorted by their lowest rank.
    std::vector<std::pair<std::string, std::vector<int>>> groups;
    for (int rank = 0; rank < static_cast<int>(engine.ranks().size()); ++rank) {
        if (rank == full) continue;
        const MemoryReport& memory = engine.ranks()[rank]->virtual_device.memory();
        const std::int64_t held = std::accumulate(memory.current.begin(),
                                                  memory.current.end(), std::int64_t{0});
        const std::string text =
            fmt::format("{}, {} at the peak", bytes_text(held), bytes_text(memory.peak));
        const auto same = std::find_if(groups.begin(), groups.end(),
                                       [&](const auto& g) { return g.first == text; });
        if (same == groups.end())
            groups.push_back({text, {rank}});
        else
            same->second.push_back(rank);
    }
    if (groups.empty()) return;
    diagnosis.details.emplace_back("What the others hold:");
    for (std::size_t i = 0; i < std::min(kListed, groups.size()); ++i)
        diagnosis.details.push_back(
            fmt::format("  {}: {}", ranks_text(groups[i].second), groups[i].first));
    if (groups.size() <= kListed) return;
    const std::size_t more = groups.size() - kListed;
    diagnosis.details.push_back(
        fmt::format("  and {} other amount{}", more, more == 1 ? "" : "s"));
}

/// Returns the ranks of the run that the posted operation waits for.
std::vector<int> awaited_by(const Posted& posted) {
    const Team& team = *posted.launch->team;
    const auto rank_of = [&](std::size_t member) { return team.ranks[member]; };
    if (is_point_to_point(posted.operation.verb)) {
        if (posted.partner != nullptr) return {};
        return {rank_of(static_cast<std::size_t>(posted.operation.peer))};
    }
    std::vector<int> absent;
    const Meeting& meeting = meeting_of(posted);
    for (std::size_t member = 0; member < team.members.size(); ++member)
        if (meeting.arrived[member] == nullptr) absent.push_back(rank_of(member));
    return absent;
}

std::string phase_text(const Engine& engine, int rank) {
    const VirtualDevice& device = engine.ranks()[rank]->virtual_device;
    if (device.phase() == Phase::none) return "";
    std::string text = fmt::format(", in {}", name_of(device.phase()));
    if (device.micro_batch() >= 0)
        text += fmt::format(" of micro-batch {}", device.micro_batch());
    return text;
}

/// Returns how a rank failed; empty if its program returned without a mistake.
std::string failure_text(const Engine& engine, int rank) {
    const std::exception_ptr failure = engine.ranks()[rank]->failure;
    if (!failure) return "";
    try {
        std::rethrow_exception(failure);
    } catch (const FaultError& fault) {
        const Diagnosis& diagnosis = fault.diagnosis();
        return "also made a mistake: " +
               (diagnosis.fault.empty() ? diagnosis.title : diagnosis.fault);
    } catch (const std::exception& error) {
        const std::string text = error.what();
        return "ended with an error: " + text.substr(0, text.find('\n'));
    } catch (...) {
        return "ended with an exception";
    }
}

/// Returns the words for ranks whose programs have ended.
std::string end_text(const Engine& engine, const std::vector<int>& ranks) {
    const bool one = ranks.size() == 1;
    std::string failure = failure_text(engine, ranks.front());
    if (!failure.empty()) return failure;
    if (engine.stands_still(ranks.front()))
        return one ? "makes no progress after its last operation"
                   : "make no progress after their last operations";
    return one ? "has ended" : "have ended";
}

/// Returns what the rank's open launch waits for.
Activity activity_of(const Launch& open) {
    Activity activity{open.rank, nullptr, {}};
    for (const Posted& posted : open.posted) {
        if (posted.done) continue;
        if (activity.posted == nullptr) activity.posted = &posted;
        std::vector<int> awaits = awaited_by(posted);
        if (awaits.empty()) continue;
        activity.posted = &posted;
        activity.awaits = std::move(awaits);
        break;
    }
    return activity;
}

}  // namespace

Activity activity_of(const Engine& engine, int rank) {
    const RankState& state = *engine.ranks()[rank];
    if (state.waiting == nullptr) return {rank, nullptr, {}};
    const Launch& waiting = *state.waiting;
    return activity_of(*waiting.team->members[waiting.member].first);
}

Activity activity_in(const Engine& engine, int rank, const Team& team) {
    if (!engine.ranks()[rank]->ended) return activity_of(engine, rank);
    const Launch* const open = team.members[team.member_of(rank)].first;
    return open == nullptr ? Activity{rank, nullptr, {}} : activity_of(*open);
}

/// Names the other rank of a message by its number in the run, and then in the team.
std::string message_text(const CommRequest& message, const Team& team) {
    const auto peer = static_cast<std::size_t>(message.peer);
    std::string text = fmt::format("rank {}", team.ranks[peer]);
    if (team.name != "world") text += fmt::format(" ({} of {})", peer, team.name);
    return text_of(message, text);
}

std::string text_of(const Posted& posted) {
    const Team& team = *posted.launch->team;
    if (is_point_to_point(posted.operation.verb))
        return message_text(posted.operation, team);
    const Launch& launch = *posted.launch;
    const std::string call =
        posted.operation.verb == Verb::split
            ? text_of(launch.engine->ranks()[launch.rank]->split.asked)
            : text_of(posted.operation);
    return fmt::format("{} #{} of {}", call, posted.sequence, team.name);
}

std::string where(const Posted& posted) {
    return place_text(posted.line(), posted.operation.at);
}

std::string text_of(const PastOperation& past) {
    const CommRequest& request = past;
    if (past.all_to_all_v)
        return fmt::format("all_to_all_v() #{} of {}", past.sequence, past.team->name);
    return is_point_to_point(past.verb)
               ? fmt::format("{} #{}", message_text(request, *past.team), past.sequence)
               : fmt::format("{} #{} of {}", text_of(request), past.sequence,
                             past.team->name);
}

std::vector<std::string> history_of(const Engine& engine, int rank, const Posted* now) {
    const RankState& state = *engine.ranks()[rank];
    std::vector<std::string> history;
    const std::uint64_t kept =
        std::min<std::uint64_t>(state.launched, RankState::kHistory);
    for (std::uint64_t i = state.launched - kept; i < state.launched; ++i) {
        const PastOperation& past = state.history[i % RankState::kHistory];
        if (now != nullptr && past.team == now->launch->team &&
            past.verb == now->operation.verb && past.sequence == now->sequence)
            continue;
        history.push_back(fmt::format("{} at {}", text_of(past), line_of(past).text()));
    }
    return history;
}

std::vector<Diagnosis::Party> parties_of(const Engine& engine,
                                         const std::vector<Activity>& activities) {
    // Messages of many ranks differ in their peers, so peers are not part of the key.
    const auto key_of = [&](const Activity& activity) {
        if (activity.ended())
            return std::make_tuple(end_text(engine, {activity.rank}), std::string());
        const CommRequest& operation = activity.posted->operation;
        const std::string phase = phase_text(engine, activity.rank);
        std::string text = fmt::format(
            "{} {} {} {} {} {}{}", name_of(operation.verb), operation.count,
            name_of(operation.dtype), name_of(operation.reduction),
            activity.posted->sequence, activity.posted->launch->team->name, phase);
        return std::make_tuple(text, where(*activity.posted));
    };
    std::map<std::tuple<std::string, std::string>, std::vector<const Activity*>> grouped;
    std::vector<std::tuple<std::string, std::string>> order;
    for (const Activity& activity : activities) {
        auto& group = grouped[key_of(activity)];
        if (group.empty()) order.push_back(key_of(activity));
        group.push_back(&activity);
    }
    std::vector<Diagnosis::Party> parties;
    for (const auto& key : order) {
        const std::vector<const Activity*>& group = grouped[key];
        const Activity& first = *group.front();
        Diagnosis::Party party;
        for (const Activity* activity : group)
            party.ranks.push_back(activity->rank);
        std::sort(party.ranks.begin(), party.ranks.end());
        party.history = history_of(engine, first.rank, first.posted);
        if (first.ended()) {
            party.operation = end_text(engine, party.ranks);
        } else {
            party.operation = text_of(*first.posted) + phase_text(engine, first.rank);
            const bool peers_differ =
                std::any_of(group.begin(), group.end(), [&](const Activity* activity) {
                    return activity->posted->operation.peer !=
                           first.posted->operation.peer;
                });
            if (peers_differ && is_point_to_point(first.posted->operation.verb))
                party.operation +=
                    fmt::format(" (rank {}'s; the others have other peers)", first.rank);
            party.at = first.posted->line();
            party.inside = first.posted->operation.at;
        }
        parties.push_back(std::move(party));
    }
    return parties;
}

void complete(const Engine& engine, Diagnosis& diagnosis) {
    if (engine.arrivals_decide())
        diagnosis.cause += std::string(diagnosis.cause.empty() ? "" : " ") +
                           "This run used wait_any: if messages arrive in another order, "
                           "it may end differently.";
    if (diagnosis.fault == "F30") add_memory_of_others(engine, diagnosis);
    if (diagnosis.time >= 0) return;
    std::vector<int> told;
    for (Diagnosis::Party& party : diagnosis.parties) {
        told.insert(told.end(), party.ranks.begin(), party.ranks.end());
        if (party.history.empty() && !party.ranks.empty())
            party.history = history_of(engine, party.ranks.front(), nullptr);
    }
    for (const int rank : told)
        diagnosis.time =
            std::max(diagnosis.time, engine.ranks()[rank]->virtual_device.now());
    diagnosis.others = others_of(engine, told);
}

std::vector<Diagnosis::Party> others_of(const Engine& engine,
                                        const std::vector<int>& told) {
    std::vector<Activity> rest;
    for (int rank = 0; rank < static_cast<int>(engine.ranks().size()); ++rank)
        if (std::find(told.begin(), told.end(), rank) == told.end())
            rest.push_back(activity_of(engine, rank));
    std::vector<Diagnosis::Party> parties = parties_of(engine, rest);
    for (Diagnosis::Party& party : parties)
        party.history.clear();
    return parties;
}

}  // namespace lockstep::sim
