#pragma once

#include <chrono>
#include <optional>
#include <sys/types.h>

namespace lockstep::lessons {

/// The time that a process with one thread has used so far, as the system shows it.
struct Activity {
    double processor_seconds = 0;
    /// In which it had work, but no processor. On a busy machine this is long.
    double queue_seconds = 0;
    bool sleeps = false;  ///< at this moment; false also if it has ended
};

/// How often the grader looks at a process for which it waits.
inline constexpr std::chrono::milliseconds kGlance{100};

/// Returns the activity of a process; empty if it has ended or the system hides it.
std::optional<Activity> activity_of(pid_t process);

/// Returns the processor time that a process has used; 0 if it has ended.
double processor_seconds_of(pid_t process);

/// Returns the first child of a process; empty if there is none or the system hides it.
std::optional<pid_t> child_of(pid_t process);

/// Returns the processor time that this process has used.
double processor_seconds();

}  // namespace lockstep::lessons
