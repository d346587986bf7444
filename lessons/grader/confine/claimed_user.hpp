#pragma once

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// A user that no other grading in this network namespace has, for as long as this object
/// lives, so that students' programs cannot reach those of others. Only root can run
/// programs as another user; else this is kNobody, and means nothing.
class ClaimedUser {
  public:
    /// Throws MissingError if all are taken.
    ClaimedUser();

    /// Also the number of the user's group.
    unsigned number() const { return number_; }

    /// Returns whether root grades, and may choose users.
    static bool works();

  private:
    unsigned number_;
    os::Descriptor claim_;
};

}  // namespace lockstep::lessons
