#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "lessons/grader/confine/view.hpp"

namespace lockstep::lessons {

/// A room (Linux namespaces) for a confined program and its keeper. It contains only the
/// files of a view and the processes that were made in it, and has no /proc and no
/// network. Users other than root need a system that allows user namespaces.
class Room {
  public:
    /// The view's paths must be absolute; only their last part may be a link.
    explicit Room(const View& view);

    /// Forks a process that can enter a room; returns what fork() returns. The new
    /// process may make only calls that are allowed between fork and exec.
    static pid_t fork() noexcept;
    /// Builds the room, and moves the calling process, which was just forked, into it.
    /// May be called between fork and exec. Returns false, with errno, if the system
    /// refuses.
    bool enter() const noexcept;

    /// Returns whether the system allows rooms for this user. The first call tries one.
    static bool works();

  private:
    enum class Kind : unsigned char { folder, file, link, hidden_folder, hidden_file };
    /// One of the view's files, as it is mounted in the room.
    struct Thing {
        Kind kind = Kind::folder;
        bool writable = false;
        std::string source;
        std::string target;  ///< a path below the folder where the room is built
        std::string leads_to{};
    };

    void add(const std::filesystem::path& path, bool writable);
    bool map_user() const noexcept;
    static bool bring(const Thing& thing) noexcept;
    bool furnish() const noexcept;

    std::vector<std::string> folders_;  ///< folders to make, in this order
    std::vector<Thing> things_;
    std::string user_map_;  ///< empty if root makes the room
    std::string group_map_;
};

}  // namespace lockstep::lessons
