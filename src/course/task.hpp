#pragma once

#include <map>
#include <string>

#include "src/trial/task.hpp"

namespace lockstep {

/// The tasks of an assignment, by name: functions that call the student's functions.
using Tasks = std::map<std::string, Task>;

/// The assignment's tasks, which its tasks.cpp defines.
Tasks tasks();

}  // namespace lockstep
