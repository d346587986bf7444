#pragma once

#include "lessons/grader/assignment.hpp"

namespace lockstep::lessons {

/// Six programs with a mistake each, to be found and mended.
Assignment debug_the_cluster_assignment();

}  // namespace lockstep::lessons
