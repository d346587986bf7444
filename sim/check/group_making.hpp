#pragma once

#include "sim/team.hpp"

namespace lockstep::sim {

class Engine;

/// FaultError (F06) where the members of a split, all of which have come, disagree about
/// the groups that it makes: members of one new group that call it differently, lists of
/// members that differ, a group that is not what a member expects. The run is quiet.
void require_same_groups(const Engine& engine, const Team& team, const Meeting& meeting);

}  // namespace lockstep::sim
