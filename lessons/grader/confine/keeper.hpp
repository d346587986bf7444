#pragma once

#include <array>
#include <cstdint>
#include <sys/resource.h>

#include "lessons/grader/confine/confined_process.hpp"
#include "lessons/grader/confine/fence.hpp"
#include "lessons/grader/confine/room.hpp"
#include "lessons/grader/confine/system_calls.hpp"
#include "src/os/deadline.hpp"

namespace lockstep::lessons {

/// A limit for setrlimit().
struct Limit {
    int resource;
    rlim_t most;       ///< the soft limit; a lower limit that is already set stays
    rlim_t reach = 0;  ///< the hard limit, if above `most`
};

/// Returns the system's limits for a confinement. If the program may start processes, the
/// threads that its user has now are added to the limit of processes.
std::array<Limit, 8> limits_of(const Confinement& confinement);

/// Closes all descriptors from `first` on. May be called between fork and exec.
void close_from(int first) noexcept;

/// Everything that is needed between fork and exec, where nothing can be allocated.
struct KeeperPlan {
    const char* file;
    char* const* arguments;
    char* const* environment;
    const char* folder;
    int nothing;  ///< /dev/null
    int output;
    int given = -1;  ///< becomes descriptor 3; -1: none
    int failure;     ///< a StartFailure is written here; closed by a successful exec
    int channel;     ///< for a KeeperReport; closing its other end ends the program
    os::Clock::time_point deadline;
    std::array<Limit, 8> limits;
    unsigned user;      ///< runs the program, if changes_user
    bool changes_user;  ///< otherwise this process's user runs it
    const Room* room;   ///< nullptr: none
    const Fence* fence;
    SystemCallFilter* filter;  ///< nullptr: none
};

/// The steps that can fail before the program runs.
enum class StartStep : std::uint8_t {
    room,
    fork,
    folder,
    fence,
    descriptors,
    user,
    limits,
    filter,
    program
};

struct StartFailure {
    StartStep step;
    int error;  ///< errno
};

struct KeeperReport {
    int status = 0;  ///< as waitpid() stores it
    bool over_wall = false;
    bool requested = false;          ///< the channel was closed before the end
    bool keeper_was_killed = false;  ///< set by the receiver: no report came
    double cpu_seconds = 0;
    /// The program's peak memory; 0 if it was never above the keeper's, because the
    /// program begins as a copy of the keeper.
    std::int64_t peak_bytes = 0;
};

/// Becomes the keeper of the program. Runs in the child of a fork, or of a clone if there
/// is a Room. It enters the Room, and starts the program as its own child, in a new
/// session. It waits for the program's end, for the deadline, or for the end of the
/// channel. Then it kills every process that the program started (orphans become the
/// keeper's children), reports, and ends. If the keeper is killed, so is the program.
/// This function makes only calls that are allowed between fork and exec.
[[noreturn]] void keep(const KeeperPlan& plan);

}  // namespace lockstep::lessons
