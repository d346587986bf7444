#pragma once

#include <string>

namespace lockstep::lessons {

/// The folders where programs are looked for, with ':' between: the environment's PATH,
/// or the usual ones where it has none.
std::string search_path();

/// The file that a name on the PATH stands for; empty where there is none.
std::string find_on_path(const std::string& name);

}  // namespace lockstep::lessons
