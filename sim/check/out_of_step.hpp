#pragma once

#include <string>
#include <vector>

#include "sim/team.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// Members that wait in one collective, and made the same call.
struct Caller {
    std::vector<int> ranks;
    const Posted* posted = nullptr;  ///< the lowest rank's
};

/// If two sides of a collective do not make the same call of the program (their lines,
/// steps or parameters differ), returns what each side has left out or does too often:
/// "rank 1 has left out the call at train.cpp:27 (…)". Empty if they make the same call,
/// with other arguments.
std::string out_of_step_text(const Engine& engine, const Caller& odd,
                             const Caller& usual);

/// "all_gather(trunk.weight, 8 x f64) in forward".
std::string call_text(const Posted& posted);

/// If the team's ranks have met in a collective that some of them called from another
/// line, and they also call from that other line themselves, they are out of step since
/// then. Makes the diagnosis one of F13 whose sentence begins with this collective;
/// returns false if there is none.
bool tell_first_out_of_step(const Engine& engine, const Team& team, Diagnosis& diagnosis);

}  // namespace lockstep::sim
