#pragma once

#include <algorithm>
#include <cstdint>

#include "src/run/run_report.hpp"

namespace lockstep::lessons {

/// The most bytes that any rank held at a time.
inline std::int64_t most_held(const RunReport& report) {
    std::int64_t most = 0;
    for (const RankReport& rank : report.ranks)
        most = std::max(most, rank.memory.peak);
    return most;
}

}  // namespace lockstep::lessons
