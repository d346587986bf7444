#pragma once

#include "lessons/grader/assignment.hpp"

namespace lockstep::lessons {

/// Gradient accumulation, and data parallelism over shards of unequal sizes.
Assignment data_parallel_assignment();

}  // namespace lockstep::lessons
