#pragma once

#include <optional>

#include "sim/team.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// Why a collective cannot go on whose members passed different things, or a send and a
/// recv that differ (F01 to F05, F09, F13). `posted` is any operation of it. The run is
/// quiet.
Diagnosis explain_difference(const Engine& engine, const Posted& posted);

/// Why nothing can run any more (F07, F10 to F14); nothing where every rank has ended and
/// nothing is left open. The run is quiet.
std::optional<Diagnosis> explain_stop(const Engine& engine);

}  // namespace lockstep::sim
