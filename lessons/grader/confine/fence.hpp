#pragma once

#include "lessons/grader/confine/view.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// A fence (Landlock) around a program, which also works against processes of the same
/// user. The program reads and runs only files of its view, and changes files only in the
/// view's writable folders. It signals only processes that it made, reads no other
/// process's memory, and uses no TCP. Old versions of the system enforce only a part of
/// this. The program can still ask whether a file exists and how long it is.
class Fence {
  public:
    explicit Fence(const View& view);

    /// Puts the fence around the calling process, which must have set no_new_privs. May
    /// be called between fork and exec. Returns false, with errno, if the system has
    /// fences and refuses this one.
    bool enter() const noexcept;

    /// Returns the system's version of fences; 0 if it has none.
    static int version();

  private:
    bool exists_;
    os::Descriptor rules_;
};

}  // namespace lockstep::lessons
