#pragma once

#include <string>

namespace lockstep::programs {

// How a program ends.
inline constexpr int kSuccess = 0;
/// A check or a comparison failed, or a program was found at fault.
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;    ///< wrong usage
inline constexpr int kLacking = 3;  ///< the machine lacks something
inline constexpr int kBroken = 4;   ///< a mistake of Lockstep itself

/// How a program ends, and what it says on standard error: whole lines.
struct Ending {
    int status = kSuccess;
    std::string text;
    bool is_diagnosis = false;  ///< which names its ranks itself
};

/// In a handler: returns what the exception was, in one line or, for a fault in a
/// distributed program, in the lines of its diagnosis, and the exit status it asks for.
/// Lines begin with the name of `program` and with `rank`, if one threw it. Without a
/// name Lockstep itself speaks: an exception of a type that is not known here is then its
/// own mistake, else the program's.
Ending ending_of_exception(const std::string& program = "", int rank = -1);

/// Says on standard error what ends the program; returns its status. If standard error is
/// gone too, the status alone is left to tell.
int report(const Ending& ending);

}  // namespace lockstep::programs
