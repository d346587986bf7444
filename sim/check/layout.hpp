#pragma once

#include <cmath>
#include <cstdint>
#include <memory>
#include <vector>

#include "sim/check/origin.hpp"
#include "sim/check/tracker.hpp"

namespace lockstep::sim {

/// How the values of a tensor lie over the ranks of a team.
struct Layout {
    enum class Kind : std::uint8_t {
        unknown,     ///< nothing is said
        constant,    ///< filled with one number
        replicated,  ///< the same on all ranks that have it with the same identity
        sharded,     ///< one part of a whole that was dealt out
        varying,     ///< made of shards
        mixed,       ///< reduced, and a contribution that is not was added
        twice,       ///< summed over the team a second time
        drifted      ///< was replicated; each rank has changed its own since
    };

    Kind kind = Kind::unknown;
    /// Made by a sum or mean over the team, or of nothing else but that.
    bool reduced = false;
    int index = -1;              ///< of a shard: its member
    std::uint64_t identity = 0;  ///< equal where values were made in the same way
    double multiplier = 1;       ///< what they were scaled by since
    Origin origin;               ///< what gave them this layout
    Origin second;               ///< twice: the reduction too many
    SourceLine changed;          ///< mixed: what was added; drifted: the update
    std::shared_ptr<const Layout> before;  ///< twice: what was reduced again

    const Team* team() const { return origin ? origin->team : nullptr; }
};

constexpr const char* name_of(Layout::Kind kind) {
    constexpr const char* kNames[] = {"unknown", "constant", "replicated", "sharded",
                                      "varying", "mixed",    "twice",      "drifted"};
    return kNames[static_cast<int>(kind)];
}

/// Made by a sum or mean over a team, and the same on all of its ranks.
inline bool is_reduced(const Layout& layout) {
    return layout.kind == Layout::Kind::replicated && layout.reduced;
}

inline bool is_one(double factor) {
    return std::abs(factor - 1) < 1e-9;
}

using LayoutRanges = Shadow<Layout>::Ranges;

/// The numbers at a place inside of what the identity is of.
inline std::uint64_t identity_at(const Shadow<Layout>::Range& range) {
    return mixed(range.fact.identity, static_cast<std::uint64_t>(range.shift()));
}

/// Every range is `wanted`, and of collectives of the same ranks: the first; else
/// null.
template <typename Wanted>
const Layout* all_of_one(const LayoutRanges& ranges, const Tensor& tensor,
                         Wanted wanted) {
    if (ranges.empty() || !cover(ranges, tensor.bytes())) return nullptr;
    for (const auto& range : ranges)
        if (!wanted(range.fact) ||
            !same_ranks(*range.fact.team(), *ranges.front().fact.team()))
            return nullptr;
    return &ranges.front().fact;
}

/// Updates of a parameter that all ranks of a team had alike, each with its own
/// gradient.
struct Drift {
    std::vector<int> ranks;
    Origin parameter;
    Origin gradient;
    SourceLine at;
    const char* operation;
};

}  // namespace lockstep::sim
