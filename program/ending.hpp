#pragma once

#include <string>

namespace lockstep::programs {

// How a program ends.
inline constexpr int kSuccess = 0;
/// A check or a comparison failed, or a program has a mistake.
inline constexpr int kFailed = 1;
inline constexpr int kUsage = 2;    ///< wrong usage
inline constexpr int kLacking = 3;  ///< the machine lacks something
inline constexpr int kBroken = 4;   ///< a bug in Lockstep

/// How a program ends, and the lines that it writes to standard error.
struct Ending {
    int status = kSuccess;
    std::string text;
    bool is_diagnosis = false;  ///< a diagnosis names its ranks itself
};

/// In a handler: returns a text for the exception, and the exit status. The text is one
/// line; for a fault in a distributed program it is the lines of the diagnosis. Lines
/// begin with the name of `program`, and with `rank` if a rank threw. An exception of
/// unknown type is the program's mistake; if `program` is empty, it is a bug in Lockstep.
Ending ending_of_exception(const std::string& program = "", int rank = -1);

/// Says on standard error what ended the program; returns its status. If standard error
/// cannot be written, the program still ends with the status.
int report(const Ending& ending);

}  // namespace lockstep::programs
