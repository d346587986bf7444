#pragma once

#include <filesystem>
#include <sys/types.h>

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

/// A temporary folder that other users cannot enter. It is removed with this object. If
/// this process ends first, in whatever way, a second process removes the folder. If the
/// second process is killed too, the next grader removes the folder.
class WorkFolder {
  public:
    /// Throws std::system_error if the folder cannot be made.
    WorkFolder();
    ~WorkFolder();
    WorkFolder(const WorkFolder&) = delete;
    WorkFolder& operator=(const WorkFolder&) = delete;

    /// Absolute, without links.
    const std::filesystem::path& path() const { return path_; }

  private:
    std::filesystem::path path_;
    os::Descriptor held_;  ///< the folder is removed when all copies of this are closed
    pid_t remover_ = -1;
    os::Descriptor lock_;  ///< on the folder; shows that its owner is alive
};

}  // namespace lockstep::lessons
