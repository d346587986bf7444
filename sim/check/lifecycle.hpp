#pragma once

#include <optional>

#include "sim/team.hpp"
#include "src/run/diagnosis.hpp"

namespace lockstep::sim {

class Engine;

/// A member lets go of its communicator while its program could still wait for operations
/// of it (F31). Nothing where it has given those up: then nobody waits for them, which is
/// another mistake.
std::optional<Diagnosis> explain_open_works(const Engine& engine, const Team& team,
                                            int member);

/// Every rank has ended: a communicator that some of its ranks have let go of and others
/// have kept beyond the end of their programs (F31). To end one takes all its ranks.
std::optional<Diagnosis> explain_kept(const Engine& engine);

}  // namespace lockstep::sim
