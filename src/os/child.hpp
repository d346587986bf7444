#pragma once

#include <optional>
#include <signal.h>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace lockstep::os {

/// Says how a program ended that ran beside this one.
struct Child {
    int status = 0;  ///< its exit status; 128 + n if signal n ended it
    std::string output;
    std::string errors;
    /// The signal that asked this process to end meanwhile, and was passed on; else 0.
    int interrupted_by = 0;
};

/// Runs a program (words[0], looked for on the PATH, then its arguments) with nothing to
/// read, and keeps what it writes. It is killed after `timeout_seconds`, if given.
/// SIGINT, SIGTERM and SIGHUP do not end this process while it waits, so that the caller
/// can tidy up. Throws std::system_error if the program cannot be started.
Child run_child(const std::vector<std::string>& words,
                std::optional<double> timeout_seconds = std::nullopt);

/// Returns the folder that this program lies in, "/usr/bin".
std::string folder_of_program();

/// Runs another program with these arguments in the place of this one, which ends here.
/// Throws std::system_error if it cannot be started.
[[noreturn]] void become(const std::string& program,
                         const std::vector<std::string>& arguments);

/// Says how a copy of this program is to start.
struct CopyPlan {
    std::vector<std::string> arguments;  ///< argv, with the program's name first
    std::vector<std::pair<std::string, std::string>> variables;  ///< to set
    bool keeps_terminal = false;  ///< if not, it reads and prints nothing but errors
    sigset_t signal_mask;         ///< that it starts with
};

/// Starts a copy of this program (/proc/self/exe). It is killed when the thread that
/// called this ends. Throws std::system_error.
pid_t start_copy(const CopyPlan& plan);

/// Waits for the end of a child; returns its status as waitpid() gives it, 0 if there is
/// no such child.
int wait_for(pid_t child) noexcept;

/// Returns words as exec wants them: a pointer to each, and a null one. They last as long
/// as the words do.
std::vector<char*> exec_words(const std::vector<std::string>& words);

}  // namespace lockstep::os
