#pragma once

#include <string>

#include "src/run/diagnosis.hpp"
#include "src/run/run_report.hpp"

namespace lockstep {

/// Who waited for whom when a run stopped, as a standalone SVG: a box for the ranks of
/// each of the diagnosis' waits, with their operation and line, and one for the ranks
/// that are waited for and wait for none, grey; an arrow from each to those that it waits
/// for. A circle of waiting is thick and of another colour, also for the colour-blind.
/// Below it, where `report` has a trace, the timeline up to the stop.
std::string wait_svg(const Diagnosis& diagnosis, const RunReport* report = nullptr);

}  // namespace lockstep
