#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "gpu/launcher/control.hpp"

namespace lockstep::gpu {

/// How a forked process of a test ended.
struct ProcessEnd {
    int status = 0;      ///< its exit status, or minus the signal that killed it
    std::string said;    ///< what its program returned
    std::string errors;  ///< what it printed to standard error
    double seconds = 0;  ///< since the start of all processes
};

/// Forks `count` processes, runs the program of each with its number, and waits. Kills
/// processes that still run after `seconds`. If a program throws RunStopped, `said` is
/// "rank R, status S: text" and its process exits with S. For another exception, `said`
/// is the exception's text and the process exits with 99. Throws if a sanitizer found
/// something in a process.
std::vector<ProcessEnd> run_processes(int count,
                                      const std::function<std::string(int)>& program,
                                      int seconds = 200);

/// Returns an address on this machine that no other test uses.
std::string fresh_address();
/// Returns, for example, "127.0.0.1:PORT". The port was free a moment ago.
std::string fresh_tcp_address(const std::string& host);

/// The secret of the tests' runs.
constexpr const char* kTestSecret = "a secret that every process of a test knows";

Placement place(int rank, int size, const std::string& address);
std::unique_ptr<Control> join(int rank, int size, const std::string& address,
                              double timeout_seconds = 10, double grace_seconds = 5);

void sleep_seconds(double seconds);
[[noreturn]] void kill_this_process();

}  // namespace lockstep::gpu
