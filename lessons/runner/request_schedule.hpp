#pragma once

#include <string>
#include <vector>

#include "lessons/runner/request.hpp"

namespace lockstep::lessons {

/// What `lockstep schedule` is asked for. Throws UsageError as read_request does; whether
/// the schedule can have these sizes, and as many times, is asked later.
Request schedule_request(const std::vector<std::string>& words);

}  // namespace lockstep::lessons
