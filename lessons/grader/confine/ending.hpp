#pragma once

#include <cstdint>
#include <string>

#include "lessons/grader/confine/confinement.hpp"

namespace lockstep::lessons {

enum class EndedBy : std::uint8_t {
    itself,        ///< it returned, or called exit()
    signal,        ///< a crash, or abort()
    cpu_limit,     ///< it was stopped for its processor time
    wall_limit,    ///< it was stopped for the time that passed
    memory_limit,  ///< nobody caught its std::bad_alloc
    request        ///< kill()
};

/// How a confined program ended.
struct Ending {
    EndedBy by = EndedBy::itself;
    int exit_status = 0;     ///< where it ended by itself
    int signal = 0;          ///< what ended it; else 0
    double cpu_seconds = 0;  ///< its own, and that of processes that it waited for
    double wall_seconds = 0;

    bool succeeded() const { return by == EndedBy::itself && exit_status == 0; }
};

/// What a student reads, after "Your program": "was stopped after 10 s of processor
/// time".
std::string ending_sentence(const Ending& ending, const Confinement& confinement);

}  // namespace lockstep::lessons
