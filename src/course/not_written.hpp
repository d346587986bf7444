#pragma once

#include <stdexcept>
#include <string>

namespace lockstep {

/// A function of an assignment throws this until it is written: `throw NotWritten("a1.2:
/// all_gather in ring.cpp")`. Graders and tests print this text, and continue.
class NotWritten : public std::logic_error {
  public:
    explicit NotWritten(const std::string& what) : std::logic_error(what) {}
};

}  // namespace lockstep
