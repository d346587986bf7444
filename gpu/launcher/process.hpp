#pragma once

#include <signal.h>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace lockstep::gpu {

/// How a copy of this program is to start.
struct CopyPlan {
    std::vector<std::string> arguments;  ///< argv, with the program's name first
    std::vector<std::pair<std::string, std::string>> variables;  ///< to set
    bool keeps_terminal =
        false;             ///< otherwise it reads and prints nothing (errors it does)
    sigset_t signal_mask;  ///< that it starts with
};

/// Starts a copy of this program (/proc/self/exe). It is killed when the thread that
/// called this ends. Throws std::system_error.
pid_t start_copy(const CopyPlan& plan);

}  // namespace lockstep::gpu
