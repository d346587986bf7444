#pragma once

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// While this object lives, no other grading in this network namespace has this user. So
/// the students' programs of two gradings cannot reach each other. Only root can run
/// programs as another user; otherwise the number is kNobody and has no effect.
class ClaimedUser {
  public:
    /// Throws MissingError if all users are taken.
    ClaimedUser();

    /// The user's group has the same number.
    unsigned number() const { return number_; }

    /// Returns whether root grades and can choose users.
    static bool works();

  private:
    unsigned number_;
    os::Descriptor claim_;
};

}  // namespace lockstep::lessons
