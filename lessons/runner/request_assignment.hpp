#pragma once

#include <string>
#include <vector>

#include "lessons/runner/request.hpp"

namespace lockstep::lessons {

// What `lockstep assignment` and `lockstep grade` are asked for. They throw UsageError as
// read_request does; whether the assignment exists is asked later.

Request assignment_request(const std::vector<std::string>& words);
Request grade_request(const std::vector<std::string>& words);

}  // namespace lockstep::lessons
