#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// An assignment's function that is still to be written throws it: `throw
/// NotWritten("a1.2: all_gather in ring.cpp")`. Graders and tests say what is to be
/// written, and continue.
class NotWritten : public std::logic_error {
  public:
    explicit NotWritten(const std::string& what) : std::logic_error(what) {}
};

}  // namespace lockstep
