#pragma once

#include <string>

#include "src/comm/rank.hpp"

namespace lockstep {

/// Runs the program, prints its timeline and each rank's figures, and leaves `name`.json,
/// a trace for Perfetto, and `name`.svg. If it made a mistake, prints the diagnosis and
/// leaves it in the folder `name`. The cluster must trace. The program's exit status: 0,
/// or 1.
int show_run(Cluster& cluster, const Program& program, const std::string& name);

}  // namespace lockstep
