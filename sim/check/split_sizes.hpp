#pragma once

#include "sim/team.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// F08: two parts of an all_to_all_v whose counts are to be the same, and are not.
Diagnosis explain_split_sizes(const Engine& engine, const Posted& send,
                              const Posted& recv);

}  // namespace lockstep::sim
