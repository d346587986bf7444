#pragma once

#include <cstdint>

namespace lockstep::lessons {

/// The user and group that programs have where this process is root.
constexpr unsigned kNobody = 65534;

/// What a program that is not trusted may use. Where this process is root, the program
/// runs as user and group 65534 as well, so that root's files are out of its reach.
struct Confinement {
    /// Processor time, of each process that there is; counted in whole seconds, upwards,
    /// and one more for a program that ignores SIGXCPU.
    double cpu_seconds = 10;
    double wall_seconds = 30;
    std::int64_t memory_bytes = 512 << 20;  ///< address space of each process
    /// The longest file it can write; also how much it can print. What is more is lost:
    /// write() fails, nothing else happens.
    std::int64_t file_bytes = 1 << 20;
    /// Processes and threads that it can have beside its first, about: the system counts
    /// those of the user as a whole. 0: none.
    int processes = 0;
    int files = 64;  ///< open descriptors
    /// Only what a program needs to start and to compute (see SystemCallFilter), where
    /// the system can filter calls. Else it can run programs, and change files in its
    /// folder; elsewhere, only where the system has no fences (see Fence).
    bool only_computes = true;
};

}  // namespace lockstep::lessons
