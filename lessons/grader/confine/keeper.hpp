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
    rlim_t most;       ///< the soft limit; if a lower one is set already, it stays
    rlim_t reach = 0;  ///< the hard limit, if above `most`
};

/// Returns the system's limits for a confinement. If it may make processes, they come on
/// top of the threads that the program's user has now.
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
    int channel;     ///< for a KeeperReport; if its other end closes, the program ends
    os::Clock::time_point deadline;
    std::array<Limit, 8> limits;
    unsigned user;     ///< of the program, if root starts it
    const Room* room;  ///< nullptr: none
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
    int status = 0;  ///< in the form of wait()
    bool over_wall = false;
    bool requested = false;          ///< the channel was closed before the end
    bool keeper_was_killed = false;  ///< then it sent no report
    double cpu_seconds = 0;
    /// The most memory that the program had; 0 if it never had more than the keeper,
    /// because it began as a copy of the keeper.
    std::int64_t peak_bytes = 0;
};

/// Becomes the keeper of the program. Runs in the child of a fork, or of a clone if there
/// is a room. It enters the room, and starts the program as its own child, in a new
/// session. It waits for the program's end, for the deadline, or for the end of the
/// channel. Then it kills every process that the program started (orphans become the
/// keeper's children), reports, and ends. If the keeper is killed, so is the program. It
/// makes only calls that are allowed between fork and exec.
[[noreturn]] void keep(const KeeperPlan& plan);

}  // namespace lockstep::lessons
