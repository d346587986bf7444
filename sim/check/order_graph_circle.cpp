// What the order graph looks for: heads of queues that wait for one another in a circle.

#include <algorithm>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/order_graph.hpp"
#include "src/run/fault_text.hpp"

namespace lockstep::sim {

/// At the head of a queue that is not empty, the first that has not met its partners.
const OrderGraph::Launch& OrderGraph::head_open(int rank) const {
    const auto& launches = queues_[rank].launches;
    return *std::find_if(launches.begin(), launches.end(),
                         [](const Launch& launch) { return !launch.met; });
}

/// The lowest rank that keeps the rank's head: its part of the operation is not at the
/// head of its queue.
int OrderGraph::awaited_by(int rank) const {
    const Launch& open = head_open(rank);
    const Team& team = *open.what.team;
    if (is_point_to_point(open.what.verb)) return team.ranks[open.what.peer];
    const Waiting& here = collectives_.at(collective_key(open.what));
    std::vector<int> ranks = team.ranks;
    for (const Place& place : here)
        std::erase(ranks, place.rank);
    return *std::min_element(ranks.begin(), ranks.end());
}

/// The part of `rank` in what another awaits, behind the head of its queue; null where it
/// has not launched that yet.
const OrderGraph::Launch* OrderGraph::behind(int rank, const Launch& awaited) const {
    const auto& launches = queues_[rank].launches;
    if (launches.empty()) return nullptr;
    const bool message = is_point_to_point(awaited.what.verb);
    const auto fits = [&](const Launch& launch) {
        if (launch.what.team != awaited.what.team || launch.met ||
            is_point_to_point(launch.what.verb) != message)
            return false;
        if (!message) return launch.what.sequence == awaited.what.sequence;
        return launch.what.verb != awaited.what.verb &&
               message_key(launch.what, launch.member) ==
                   message_key(awaited.what, awaited.member);
    };
    const auto found =
        std::find_if(launches.begin() + launches.front().together, launches.end(), fits);
    return found == launches.end() ? nullptr : &*found;
}

/// Heads that wait for one another, each for the next and the last for the first; none
/// where the waits end with a rank that has yet to launch something.
std::vector<OrderGraph::Link> OrderGraph::circle_from(int rank) const {
    std::vector<Link> path;
    std::vector<int> place(queues_.size(), -1);
    const Launch* awaited = nullptr;
    while (true) {
        const auto index = static_cast<std::size_t>(rank);
        if (queues_[index].launches.empty()) return {};
        const Launch* later = awaited == nullptr ? nullptr : behind(rank, *awaited);
        if (awaited != nullptr && later == nullptr) return {};
        if (place[index] >= 0) {
            path.erase(path.begin(), path.begin() + place[index]);
            path.front().later = later;
            return path;
        }
        place[index] = static_cast<int>(path.size());
        path.push_back({rank, &head_open(rank), later});
        awaited = path.back().first;
        rank = awaited_by(rank);
    }
}

std::string OrderGraph::sentence_of(const std::vector<Link>& circle) const {
    constexpr std::size_t kTold = 3;
    const std::size_t told = std::min(kTold, circle.size());
    const auto text = [](const Launch& launch) {
        return fmt::format("{} at {}", text_of(launch.what), launch.what.at.text());
    };
    std::string sentence;
    for (std::size_t i = 0; i < told; ++i)
        sentence +=
            fmt::format("{}rank {} launches {} before {}",
                        i == 0          ? ""
                        : i + 1 == told ? ", but "
                                        : ", ",
                        circle[i].rank, text(*circle[i].first), text(*circle[i].later));
    if (told == circle.size()) return sentence;
    return sentence + fmt::format(", and so on in a circle of {} ranks", circle.size());
}

Diagnosis OrderGraph::diagnosis_of_circle(const std::vector<Link>& circle) const {
    Diagnosis diagnosis = diagnosis_of("F12");
    diagnosis.sentence = sentence_of(circle);
    std::vector<std::string> names;
    for (const Link& link : circle) {
        for (const Launch* launch : {link.first, link.later}) {
            const char* const when = launch == link.first ? "first " : "then ";
            diagnosis.parties.push_back(
                {{link.rank}, when + text_of(launch->what), "", launch->what.at, {}});
            const std::string& name = launch->what.team->name;
            if (std::find(names.begin(), names.end(), name) == names.end())
                names.push_back(name);
        }
    }
    for (const std::string& name : names)
        diagnosis.communicator += (name == names.front() ? "" : " and ") + name;
    diagnosis.details.push_back(
        "This run came through only because here each communicator has resources of its "
        "own. On GPUs they share those of a device: when these run short, or with "
        "NCCL_LAUNCH_ORDER_IMPLICIT=1, each of these ranks holds what the next one waits "
        "for, and all hang.");
    return diagnosis;
}

void OrderGraph::require_no_circle() const {
    for (std::size_t rank = 0; rank < queues_.size(); ++rank) {
        if (queues_[rank].launches.empty()) continue;
        const std::vector<Link> circle = circle_from(static_cast<int>(rank));
        if (!circle.empty()) throw FaultError(diagnosis_of_circle(circle));
    }
}

}  // namespace lockstep::sim
