#include "sim/check/origin.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::sim {

std::string CollectiveOrigin::text() const {
    const CommRequest& request = *this;
    return fmt::format("{} of {}", text_of(request), team->name);
}

std::string CollectiveOrigin::text_with_line() const {
    return fmt::format("{} at {}", text(), at.text());
}

Diagnosis::Party CollectiveOrigin::party() const {
    return sim::party(sorted_ranks(*team), text(), at);
}

Origin origin_of(const Meeting& meeting) {
    const Posted* lowest = meeting.arrived.front();
    for (const Posted* posted : meeting.arrived)
        if (posted->launch->rank < lowest->launch->rank) lowest = posted;
    return std::make_shared<const CollectiveOrigin>(CollectiveOrigin{past_of(*lowest)});
}

Diagnosis::Party party(std::vector<int> ranks, std::string operation, SourceLine at,
                       std::string differs) {
    return {std::move(ranks), std::move(operation), std::move(differs), at, {}};
}

std::vector<int> sorted_ranks(const Team& team) {
    std::vector<int> ranks = team.ranks;
    std::sort(ranks.begin(), ranks.end());
    return ranks;
}

bool contains(const Team& outer, const Team& inner) {
    if (&outer == &inner) return true;
    const std::vector<int> all = sorted_ranks(outer);
    return std::all_of(inner.ranks.begin(), inner.ranks.end(), [&](int rank) {
        return std::binary_search(all.begin(), all.end(), rank);
    });
}

bool same_ranks(const Team& one, const Team& other) {
    return one.size() == other.size() && contains(one, other);
}

}  // namespace lockstep::sim
