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

/// In a catch block: returns a text for the exception, and the exit status. The text is
/// the diagnosis of a FaultError, or one line that begins with the name of `program` and,
/// if a rank threw, with `rank`. An exception of unknown type counts as a mistake of the
/// program or, if `program` is empty, as a bug in Lockstep.
Ending ending_of_exception(const std::string& program = "", int rank = -1);

/// Writes the text to standard error. Returns the exit status, even if it cannot write.
int report(const Ending& ending);

}  // namespace lockstep::programs
