#pragma once

#include <optional>
#include <vector>

#include "src/comm/operation_log.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

/// Repeats the communicator calls of a real run's ranks on virtual devices that compute
/// only shapes. Returns the diagnosis of the mistake that stops the ranks. Returns none
/// if all ranks get as far as in the real run: then the calls match, and the cause is
/// elsewhere. A rank that has not ended in its log stays stuck after its last call. The
/// logs must be complete and in rank order.
std::optional<Diagnosis> replay(const std::vector<RankLog>& logs);

}  // namespace lockstep::sim
