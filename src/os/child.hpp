#pragma once

#include <optional>
#include <signal.h>
#include <string>
#include <sys/types.h>
#include <utility>
#include <vector>

namespace lockstep::os {

/// How a child program has ended, and what it wrote.
struct Child {
    int status = 0;  ///< its exit status; 128 + n if signal n ended it
    std::string output;
    std::string errors;
    /// The signal that asked this process to end while the program ran; 0 if there was
    /// none. The child program gets the signal, too.
    int interrupted_by = 0;
};

/// Runs a program with empty input, and keeps its output. words[0] is its name, which is
/// searched for on the PATH; the other words are its arguments. The program is killed
/// after `timeout_seconds`, if given. SIGINT, SIGTERM and SIGHUP do not end this process
/// while it waits, so that the caller can clean up. Throws std::system_error if the
/// program cannot be started.
Child run_child(const std::vector<std::string>& words,
                std::optional<double> timeout_seconds = std::nullopt);

/// Returns the folder of this program, such as "/usr/bin".
std::string folder_of_program();

/// Replaces this program by another one with these arguments. Throws std::system_error if
/// it cannot be started.
[[noreturn]] void become(const std::string& program,
                         const std::vector<std::string>& arguments);

/// How a copy of this program starts.
struct CopyPlan {
    std::vector<std::string> arguments;  ///< argv, with the program's name first
    std::vector<std::pair<std::string, std::string>> variables;  ///< environment to set
    bool keeps_terminal = false;  ///< if false, it reads nothing and prints only errors
    sigset_t signal_mask;         ///< the copy starts with this mask
};

/// Starts a copy of this program (/proc/self/exe). The copy is killed when the thread
/// that called start_copy ends. Throws std::system_error.
pid_t start_copy(const CopyPlan& plan);

/// Waits for the end of a child; returns its status as waitpid() gives it, 0 if there is
/// no such child.
int wait_for(pid_t child) noexcept;

/// Returns words in the form that exec takes: a pointer to each, then a null pointer. The
/// pointers are valid as long as the words are.
std::vector<char*> exec_words(const std::vector<std::string>& words);

}  // namespace lockstep::os
