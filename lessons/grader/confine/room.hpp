#pragma once

#include <string>
#include <sys/types.h>
#include <vector>

#include "lessons/grader/confine/view.hpp"

namespace lockstep::lessons {

/// A room (Linux namespaces) for a confined program and its keeper: in it are the files
/// of a view and no others, no process that was not made in it, no /proc, and no network.
/// A normal user needs a system that lets them make user namespaces.
class Room {
  public:
    /// The view's paths are absolute, and have no links in them but the last part.
    explicit Room(const View& view);

    /// Forks a process that can enter a room; only calls that are allowed between fork
    /// and exec may follow there. Returns as fork() does.
    static pid_t fork() noexcept;
    /// Furnishes the room, and shuts the calling process, just forked, in it. May be
    /// called between fork and exec. False, with errno, if the system refuses.
    bool enter() const noexcept;

    /// Returns whether the system has rooms for this user. The first call tries one.
    static bool works();

  private:
    enum class Kind : unsigned char { folder, file, link };
    /// One of the view's files, as it is put into the room.
    struct Thing {
        Kind kind = Kind::folder;
        bool writable = false;
        std::string source;
        std::string target;  ///< below the room's root, while that is made
        std::string leads_to{};
    };

    void add(const std::filesystem::path& path, bool writable);
    bool map_user() const noexcept;
    bool furnish() const noexcept;

    std::vector<std::string> folders_;  ///< to make, in this order
    std::vector<Thing> things_;
    std::string user_map_;  ///< empty if root makes the room
    std::string group_map_;
};

}  // namespace lockstep::lessons
