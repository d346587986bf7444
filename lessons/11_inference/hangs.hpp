#pragma once

#include <cstdint>
#include <vector>

#include "src/comm/rank.hpp"

namespace lockstep::lessons {

// Services of two ranks that once hung, and the same ones cured.

/// Both share out the heads of a model. Each drops a request that has waited for too
/// long, by its own clock.
void drop_by_own_clock(Rank& rank);
/// They share out experts, and have requests of their own. One that has none left rests.
void rest_without_requests(Rank& rank);

/// The same requests, which rank 0's clock takes in; and requests of their own, until
/// nobody has any. Return how many requests each rank has answered.
std::vector<std::int64_t> serve_by_one_clock(Cluster& cluster);
std::vector<std::int64_t> serve_each_other(Cluster& cluster);

}  // namespace lockstep::lessons
