#pragma once

#include <array>
#include <sys/resource.h>

#include "lessons/grader/confine/confinement.hpp"

namespace lockstep::lessons {

/// One of setrlimit()'s.
struct Limit {
    int resource;
    rlim_t most;       ///< asked for; a lower one that holds already stays
    rlim_t reach = 0;  ///< up to which the program may raise it, where more than `most`
};

/// The system's limits for a confinement. Counts the threads that the program's user has
/// now, where it may make processes: it has as many more.
std::array<Limit, 8> limits_of(const Confinement& confinement, bool drops_user);

}  // namespace lockstep::lessons
