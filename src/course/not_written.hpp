#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// Stands where an assignment's function is still to be written: `throw NotWritten("a1.2:
/// all_gather in ring.cpp")`. Graders and tests say what is to be written, and go on.
class NotWritten : public std::logic_error {
  public:
    explicit NotWritten(const std::string& what) : std::logic_error(what) {}
};

}  // namespace lockstep
