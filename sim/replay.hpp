#pragma once

#include <optional>
#include <vector>

#include "src/comm/operation_log.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

/// Repeats, on virtual devices that compute shapes only, what the ranks of a real run
/// asked of their communicators, and gives the diagnosis of the mistake that stops them.
/// None where they would all have come to where they stand: then the calls match, and
/// what keeps the run is elsewhere. A rank whose log has not ended stands still where its
/// calls end. The logs must be complete; they are in rank order.
std::optional<Diagnosis> replay(const std::vector<RankLog>& logs);

}  // namespace lockstep::sim
