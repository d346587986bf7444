#pragma once

#include <vector>

#include "sim/network.hpp"
#include "sim/team.hpp"
#include "src/cost/collectives.hpp"
#include "src/run/run_report.hpp"

namespace lockstep::sim {

/// Adds what each member exchanges in a collective to its counts, by the class of each
/// link. The call itself counts once, among those inside a node. What the team's last
/// call came to is kept: most calls are made again and again.
void count_collective(Team& team, const CollectiveCall& call, const ClusterSpec& spec);

/// Adds a message to both sides' counts.
void count_message(const Message& message, const ClusterSpec& spec);

/// Appends a member's counts to its rank's report, verb by verb.
void add_traffic(const Team& team, int member, std::vector<Traffic>& traffic);

}  // namespace lockstep::sim
