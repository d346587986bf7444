#pragma once

#include <vector>

#include "sim/check/rollcall.hpp"

namespace lockstep::sim {

/// F24: replicas of a parameter that differ before a step.
Diagnosis explain_drifted(const Rollcall::Roll& roll,
                          const std::vector<Rollcall::Side>& sides);

/// F23: the gradients of a parameter that was declared a replica, where they differ.
Diagnosis explain_own_gradients(const Rollcall::Roll& roll,
                                const std::vector<Rollcall::Side>& sides);

}  // namespace lockstep::sim
