#pragma once

#include "lessons/grader/assignment.hpp"

namespace lockstep::lessons {

/// Reduce-scatter, all-gather and all-reduce from send and recv.
Assignment ring_all_reduce_assignment();

}  // namespace lockstep::lessons
