#pragma once

#include <chrono>
#include <optional>
#include <sys/types.h>

namespace lockstep::lessons {

/// What a process does at this moment, as the system shows it.
struct Activity {
    double processor_seconds = 0;  ///< that its threads have used; in steps of 10 ms
    /// It neither computes nor waits for a processor, memory or a disk: it sleeps, or is
    /// stopped. On a busy machine a program that has work is still not idle.
    bool is_idle = false;
};

/// How often the grader looks at a process for which it waits.
inline constexpr std::chrono::milliseconds kGlance{100};

/// Returns the activity of a process with one thread; empty if the process has ended or
/// the system hides it.
std::optional<Activity> activity_of(pid_t process);

/// Returns the first child of a process; empty if there is none or the system hides it.
std::optional<pid_t> child_of(pid_t process);

/// Returns the processor time that this process has used.
double processor_seconds();

}  // namespace lockstep::lessons
