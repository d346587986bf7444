#pragma once

#include <sys/types.h>

#include "lessons/grader/confine/keeper.hpp"

namespace lockstep::lessons {

/// What the child of the keeper does: takes the plan's descriptors, user, limits and
/// filter, and becomes the program. Only makes calls that are allowed between fork and
/// exec.
[[noreturn]] void become_program(const KeeperPlan& plan, pid_t keeper);

/// Tells of a failure, and ends this process.
[[noreturn]] void fail_to_start(const KeeperPlan& plan, StartStep step, int error);

/// Closes all descriptors from one on.
void close_from(int first);

}  // namespace lockstep::lessons
