#pragma once

#include <map>
#include <string>

#include "src/trial/task.hpp"

namespace lockstep {

/// What an assignment asks for, as its tests call it, by name.
using Tasks = std::map<std::string, Task>;

/// The assignment's tasks, which its tasks.cpp defines.
Tasks tasks();

}  // namespace lockstep
