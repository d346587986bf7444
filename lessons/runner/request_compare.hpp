#pragma once

#include <string>
#include <vector>

#include "lessons/runner/request.hpp"

namespace lockstep::lessons {

/// What `lockstep compare` is asked for: two records, or, with --backends, a lesson on
/// two backends. Throws UsageError as read_request does.
Request compare_request(const std::vector<std::string>& words);

}  // namespace lockstep::lessons
