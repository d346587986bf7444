#pragma once

#include <string>

#include "src/comm/rank.hpp"

namespace lockstep {

/// Runs the program, prints its timeline and each rank's figures, and writes a trace for
/// Perfetto (`name`.json) and a picture (`name`.svg). If the program makes a mistake,
/// prints the diagnosis and writes it to the folder `name`. The cluster must trace.
/// Returns the program's exit status: 0, or 1 if it failed.
int show_run(Cluster& cluster, const Program& program, const std::string& name);

}  // namespace lockstep
