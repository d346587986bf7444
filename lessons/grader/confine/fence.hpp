#pragma once

#include "lessons/grader/confine/view.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// A fence (Landlock) around a program, even against those of the same user: it reads and
/// runs what its view has and nothing else, changes files in what it may write to alone,
/// signals no process but those that it made, reads no other process's memory, and uses
/// no TCP; as far as the system's version goes. Whether a file is there, and how long it
/// is, can be asked all the same.
class Fence {
  public:
    explicit Fence(const View& view);

    /// Puts the fence around the calling process, which must have set no_new_privs. May
    /// be called between fork and exec. False, with errno, if the system has fences and
    /// refuses this one.
    bool enter() const noexcept;

    /// Returns the version that the system has; 0: it has no fences.
    static int version();

  private:
    bool exists_;
    os::Descriptor rules_;
};

}  // namespace lockstep::lessons
