#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "lessons/runner/page.hpp"

namespace lockstep::lessons {

/// Progress as a line "what  45 %" on standard error, if that is a terminal; else it
/// shows nothing. The line appears after a second, changes at most ten times a second,
/// and is gone when the object is.
std::unique_ptr<Progress> show_progress(const std::string& what, std::int64_t total);

}  // namespace lockstep::lessons
