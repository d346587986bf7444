#pragma once

#include <filesystem>

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// A fence (Landlock) around what a program can do to others, even to those of the same
/// user: it changes no files but in its folder, signals no process but those that it
/// made, reads no other process's memory, and uses no TCP; as far as the system's version
/// goes. Reading files and running programs is free.
class Fence {
  public:
    /// No file can be changed where `folder` is empty.
    explicit Fence(const std::filesystem::path& folder);

    /// Puts the fence around the calling process, which must have set no_new_privs. May
    /// be called between fork and exec. False if the system has none.
    bool enter() const noexcept;

    /// Returns whether the system has fences.
    static bool works();

  private:
    os::Descriptor rules_;
};

}  // namespace lockstep::lessons
