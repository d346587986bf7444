#pragma once

#include "sim/check/in_flight.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

/// F16 or F17: at `at`, in `what`, the rank touches a buffer that an operation uses.
Diagnosis explain_race(int rank, const Use& use, const std::string& what, bool reads,
                       const Tensor& touched, SourceLine at);

/// F17 by a write that no device operation made: seen when the operation moved its data,
/// or, with a line, when its rank waited for it.
Diagnosis explain_hidden_write(int rank, const Use& use, SourceLine waited_at);

/// F18: what the rank has just learned to be done used memory that nobody had kept.
Diagnosis explain_given_up(int rank, const Use& use, SourceLine waited_at);

}  // namespace lockstep::sim
