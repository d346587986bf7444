#pragma once

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// A user for the programs of one grading. While this object lives, no other grading in
/// this network namespace gets the same user, so students' programs of two gradings
/// cannot reach each other. If works() is false, programs run as the user who grades.
class ClaimedUser {
  public:
    /// Throws MissingError if all users are taken.
    ClaimedUser();

    /// The user's group has the same number.
    unsigned number() const { return number_; }

    /// Returns whether root grades and can choose users. In a container whose only user
    /// is root, it cannot.
    static bool works();

  private:
    unsigned number_;
    os::Descriptor claim_;
};

}  // namespace lockstep::lessons
