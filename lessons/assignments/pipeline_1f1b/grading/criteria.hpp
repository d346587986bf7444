#pragma once

#include "lessons/grader/assignment.hpp"

namespace lockstep::lessons {

/// Pipeline schedules as data: 1F1B, under a limit of memory, with backward in halves.
Assignment pipeline_1f1b_assignment();

}  // namespace lockstep::lessons
