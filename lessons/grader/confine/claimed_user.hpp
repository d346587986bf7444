#pragma once

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// A user that no other grading in this network namespace has while this object lives, so
/// that students' programs cannot reach those of others. Only root can run programs as
/// another user; otherwise the number is kNobody and has no effect.
class ClaimedUser {
  public:
    /// Throws MissingError if all are taken.
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
