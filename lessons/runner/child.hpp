#pragma once

#include <optional>
#include <string>
#include <vector>

namespace lockstep::lessons {

/// What a program that ran beside this one came to.
struct Child {
    int status = 0;  ///< its exit status; 128 + n where signal n ended it
    std::string output;
    std::string errors;
    /// The signal that asked this process to end meanwhile, and was passed on; else 0.
    int interrupted_by = 0;
};

/// Runs a program (words[0], looked for on the PATH, then its arguments) with nothing to
/// read, and keeps what it writes. It is killed after `timeout_seconds`, where given.
/// SIGINT, SIGTERM and SIGHUP do not end this process while it waits, so that the caller
/// can tidy up. Throws std::system_error where the program cannot be started.
Child run_child(const std::vector<std::string>& words,
                std::optional<double> timeout_seconds = std::nullopt);

}  // namespace lockstep::lessons
