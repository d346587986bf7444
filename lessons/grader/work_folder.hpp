#pragma once

#include <filesystem>
#include <sys/types.h>

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// A temporary folder that nobody else can enter, and that goes with this object, or with
/// the process that made it, however that ends: a process of its own waits for that, and
/// removes the folder. If that one is killed too, the next grader removes what is left.
class WorkFolder {
  public:
    /// Throws std::system_error if it cannot be made.
    WorkFolder();
    ~WorkFolder();
    WorkFolder(const WorkFolder&) = delete;
    WorkFolder& operator=(const WorkFolder&) = delete;

    /// Absolute, without links.
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
    os::Descriptor held_;  ///< its other end tells the remover that all who had it went
    pid_t remover_ = -1;
    os::Descriptor lock_;  ///< of the folder: who has it is still there
};

}  // namespace lockstep::lessons
