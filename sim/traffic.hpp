#pragma once

#include <vector>

#include "sim/network.hpp"
#include "sim/team.hpp"
#include "src/cost/collectives.hpp"
#include "src/report/run_report.hpp"

namespace lockstep::sim {

/// Adds what `member` moves in a collective to its counts. What a ring sends goes over
/// the link to the next member, what it receives comes over the one from the member
/// before.
void count_collective(Team& team, int member, const CollectiveCall& call,
                      const ClusterSpec& spec);

/// Adds a message to both sides' counts.
void count_message(const Message& message, const ClusterSpec& spec);

/// Appends a member's counts to its rank's report, verb by verb.
void add_traffic(const Team& team, int member, std::vector<Traffic>& traffic);

}  // namespace lockstep::sim
