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

/// One of setrlimit()'s.
struct Limit {
    int resource;
    rlim_t most;       ///< asked for; a lower one that holds already stays
    rlim_t reach = 0;  ///< up to which the program may raise it, where more than `most`
};

/// The system's limits for a confinement. Counts the threads that the program's user has
/// now, where it may make processes: it has as many more.
std::array<Limit, 8> limits_of(const Confinement& confinement);

/// Closes all descriptors from one on. May be called between fork and exec.
void close_from(int first) noexcept;

/// All that is needed between fork and exec: there, nothing can be allocated.
struct KeeperPlan {
    const char* file;
    char* const* arguments;
    char* const* environment;
    const char* folder;
    int nothing;  ///< /dev/null
    int output;
    int given = -1;  ///< becomes descriptor 3; -1: none
    int failure;     ///< takes a StartFailure; closed by a successful exec
    int channel;     ///< takes a KeeperReport; its end is the wish that all end
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
    int status = 0;  ///< as wait() has it
    bool over_wall = false;
    bool requested = false;          ///< somebody closed the channel before the end
    bool keeper_was_killed = false;  ///< so it sent none
    double cpu_seconds = 0;
    /// The most memory that the program had; 0 if that is no more than the keeper had,
    /// whose copy it was at first.
    std::int64_t peak_bytes = 0;
};

/// Runs in the child of a fork, or of a clone if there is a room, which becomes the
/// keeper of the program, not the program itself. It shuts itself in the room, and
/// starts the program as its own child, in a new session. It waits for
/// the program's end, the deadline or the end of the channel. Then it kills every process
/// that came of the program, wherever that fled (orphans become the keeper's), reports,
/// and ends. If the keeper is killed, so is the program. It only makes calls that are
/// allowed between fork and exec.
[[noreturn]] void keep(const KeeperPlan& plan);

}  // namespace lockstep::lessons
