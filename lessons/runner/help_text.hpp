#pragma once

#include <string>

#include "lessons/runner/arguments.hpp"

namespace lockstep::lessons {

/// Usage, purpose, and a line for each positional and option, wrapped to `width` columns.
std::string help_text(const CommandText& command, int width);

/// "  name        meaning", wrapped with the meaning's lines below one another.
std::string entry_text(const std::string& name, const std::string& meaning, int width);

}  // namespace lockstep::lessons
