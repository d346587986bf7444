#pragma once

#include <string>
#include <vector>

#include "lessons/grader/assignment.hpp"

namespace lockstep::lessons {

/// All assignments, in the order of the course.
const std::vector<Assignment>& assignments();

/// UsageError names those there are.
const Assignment& find_assignment(const std::string& slug);

}  // namespace lockstep::lessons
