#pragma once

#include <vector>

#include "sim/team.hpp"

namespace lockstep::sim {

/// Moves and combines the values of a collective for which every member has arrived,
/// through the devices' own operations. Sums are made in the order in which a ring makes
/// them: chunk c starts at rank c + 1 and ends at rank c; a reduce starts after the root
/// and ends there. A mean is the sum scaled by 1/n.
void compute(const std::vector<Posted*>& members);

}  // namespace lockstep::sim
