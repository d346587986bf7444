#include "sim/check/memory.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "sim/engine.hpp"

namespace lockstep::sim {

void add_memory_of_others(const Engine& engine, Diagnosis& diagnosis) {
    constexpr std::size_t kListed = 8;
    const int full = diagnosis.parties.front().ranks.front();
    // Ranks that hold the same together, in order of the lowest.
    std::vector<std::pair<std::string, std::vector<int>>> groups;
    for (int rank = 0; rank < static_cast<int>(engine.ranks().size()); ++rank) {
        if (rank == full) continue;
        const MemoryReport& memory = engine.ranks()[rank]->clock.memory();
        const std::int64_t held = std::accumulate(memory.current.begin(),
                                                  memory.current.end(), std::int64_t{0});
        const std::string text = fmt::format("{}, at the most {} so far",
                                             bytes_text(held), bytes_text(memory.peak));
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
    if (groups.size() > kListed)
        diagnosis.details.push_back(
            fmt::format("  and {} different amounts more", groups.size() - kListed));
}

}  // namespace lockstep::sim
