#include "sim/check/waits.hpp"

#include <algorithm>
#include <map>
#include <tuple>

#include <fmt/format.h>

#include "sim/check/activity.hpp"
#include "sim/check/checker.hpp"
#include "sim/engine.hpp"

namespace lockstep::sim {

namespace {

/// Ranks that wait at one line for messages are told one by one up to so many.
constexpr std::size_t kMostAlone = 8;

/// Members of the same collective that passed something else.
std::vector<int> opposed_to(const Posted& posted) {
    std::vector<int> ranks;
    if (is_point_to_point(posted.operation.verb)) {
        if (posted.partner != nullptr) ranks.push_back(posted.partner->batch->rank);
        return ranks;
    }
    for (const Posted* other : meeting_of(posted).arrived)
        if (other != nullptr && !same_signature(other->operation, posted.operation))
            ranks.push_back(other->batch->rank);
    return ranks;
}

using Key = std::tuple<bool, int, std::uint64_t, std::string, std::string>;

/// Equal for ranks whose waits are told as one. A message's peer does not count.
Key key_of(const Posted& posted) {
    CommOperation operation;
    operation.verb = posted.operation.verb;
    operation.reduction = posted.operation.reduction;
    operation.dtype = posted.operation.dtype;
    operation.count = posted.operation.count;
    const bool message = is_point_to_point(operation.verb);
    if (!message) operation.peer = posted.operation.peer;
    return {message, posted.batch->team->id, message ? 0 : posted.sequence,
            text_of(operation), posted.operation.at.text()};
}

Diagnosis::Wait wait_of(const Activity& activity) {
    std::vector<int> to = activity.awaits;
    if (to.empty()) to = opposed_to(*activity.posted);
    return {{activity.rank},
            std::move(to),
            text_of(*activity.posted),
            activity.posted->operation.at};
}

/// Equal activities as waits: of many messages one.
void add_waits(std::vector<Diagnosis::Wait>& waits,
               const std::vector<Activity>& activities) {
    const bool message = is_point_to_point(activities.front().posted->operation.verb);
    if (message && activities.size() <= kMostAlone) {
        for (const Activity& activity : activities)
            waits.push_back(wait_of(activity));
        return;
    }
    Diagnosis::Wait wait = wait_of(activities.front());
    for (std::size_t i = 1; i < activities.size(); ++i) {
        wait.from.push_back(activities[i].rank);
        if (!message) continue;
        const std::vector<int> more = wait_of(activities[i]).to;
        wait.to.insert(wait.to.end(), more.begin(), more.end());
    }
    if (message)
        wait.operation +=
            fmt::format(" (rank {}'s; the others have other peers)", wait.from.front());
    std::sort(wait.to.begin(), wait.to.end());
    wait.to.erase(std::unique(wait.to.begin(), wait.to.end()), wait.to.end());
    waits.push_back(std::move(wait));
}

}  // namespace

std::vector<Diagnosis::Wait> waits_of(const Engine& engine) {
    std::vector<Activity> all;
    std::vector<Diagnosis::Wait> waits;
    for (std::size_t rank = 0; rank < engine.ranks().size(); ++rank) {
        if (engine.ranks()[rank]->ended) continue;
        Activity activity = activity_of(engine, static_cast<int>(rank));
        if (activity.ended()) continue;
        all.push_back(activity);
        waits.push_back(wait_of(activity));
    }
    // A small circle is told rank by rank; what leads to it is not part of it.
    std::vector<std::size_t> circle = circle_of(waits);
    if (circle.size() > kMostAlone) circle.clear();
    std::map<Key, std::vector<Activity>> grouped;
    std::vector<Diagnosis::Wait> told;
    for (std::size_t i = 0; i < all.size(); ++i) {
        const bool alone = is_point_to_point(all[i].posted->operation.verb) &&
                           std::ranges::find(circle, i) != circle.end();
        if (alone)
            told.push_back(waits[i]);
        else
            grouped[key_of(*all[i].posted)].push_back(all[i]);
    }
    waits = std::move(told);
    for (const auto& [key, activities] : grouped)
        add_waits(waits, activities);
    std::erase_if(waits, [](const Diagnosis::Wait& wait) { return wait.to.empty(); });
    std::sort(waits.begin(), waits.end(), [](const auto& a, const auto& b) {
        return a.from.front() < b.from.front();
    });
    return waits;
}

}  // namespace lockstep::sim
