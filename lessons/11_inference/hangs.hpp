#pragma once

#include "src/comm/rank.hpp"

namespace lockstep::lessons {

// Services of two ranks that once hung, and the same ones cured.

/// Both share out the heads of a model. A request that has waited for too long is
/// dropped: each rank goes by its own clock, or both by rank 0's. Leaves in the series
/// "answered" how many requests have been answered, also in part.
void drop_by_own_clock(Rank& rank);
void drop_by_one_clock(Rank& rank);
/// They share out experts, and have requests of their own. One that has none left rests.
void rest_without_requests(Rank& rank);

/// They go on until nobody has any. Leaves the same.
void serve_each_other(Rank& rank);

}  // namespace lockstep::lessons
