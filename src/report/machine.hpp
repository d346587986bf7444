#pragma once

#include <string>

namespace lockstep {

/// The computer of a run, as run.json describes it.
struct Machine {
    std::string cpu;  ///< model name; "unknown" if the system does not tell
    int cores = 0;    ///< cores that this process may use
    std::string system;
    std::string compiler;
};

Machine this_machine();

}  // namespace lockstep
