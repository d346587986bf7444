#pragma once

#include <cstdint>
#include <stdexcept>
#include <string>

namespace lockstep::lessons {

/// Why a task did not come to its end on a rank, where no device or communicator knows.
class TaskEnded : public std::runtime_error {
  public:
    enum class Cause : std::uint8_t {
        not_written,  ///< it threw NotWritten
        threw,        ///< something else
        process,      ///< its process ended, or was ended
        late,         ///< time ran out
        line          ///< its process said what a program does not say
    };

    TaskEnded(Cause cause, int rank, const std::string& text)
        : std::runtime_error(text), cause_(cause), rank_(rank) {}

    Cause cause() const { return cause_; }
    int rank() const { return rank_; }

  private:
    Cause cause_;
    int rank_;
};

}  // namespace lockstep::lessons
