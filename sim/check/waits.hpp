#pragma once

#include <vector>

#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// Who waits for whom when the run is quiet. Ranks in one collective are one wait; those
/// that passed something else to it are waited for as if they had not come. Where many
/// ranks wait for messages at one line, they are one wait for all of their peers.
std::vector<Diagnosis::Wait> waits_of(const Engine& engine);

}  // namespace lockstep::sim
