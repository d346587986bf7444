#pragma once

#include <optional>
#include <vector>

#include "src/comm/operation_log.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

/// Repeats, on virtual devices that compute shapes only, what the ranks of a real run
/// asked of their communicators, and returns the diagnosis of the mistake that stops
/// them. Returns none if they would all have come to where they stand: then the calls
/// match, and what keeps the run is elsewhere. A rank whose log has not ended stands
/// still at the end of its calls. The logs must be complete; they are in rank order.
std::optional<Diagnosis> replay(const std::vector<RankLog>& logs);

}  // namespace lockstep::sim
