#include <cerrno>
#include <filesystem>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <vector>

#include "lessons/grader/confine/confined_process.hpp"

namespace lockstep::lessons {

namespace {

namespace fs = std::filesystem;

/// The folder, and what is in it, links as themselves.
std::vector<fs::path> entries(const fs::path& folder) {
    std::vector<fs::path> all{folder};
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder))
        all.push_back(entry.path());
    return all;
}

void give(const fs::path& folder, uid_t user, gid_t group) {
    for (const fs::path& entry : entries(folder))
        if (::lchown(entry.c_str(), user, group) != 0)
            throw std::system_error(errno, std::generic_category(),
                                    "cannot give away " + entry.string());
}

/// Folders can be entered, files read, by all; what can be run, by all.
void open_to_all(const fs::path& folder) {
    for (const fs::path& entry : entries(folder)) {
        const fs::file_status status = fs::symlink_status(entry);
        const bool runs =
            fs::is_directory(status) ||
            (status.permissions() & fs::perms::owner_exec) != fs::perms::none;
        const fs::perms mode{runs ? 0755U : 0644U};
        if (fs::is_directory(status) || fs::is_regular_file(status))
            fs::permissions(entry, mode);
    }
}

}  // namespace

void hand_over(const fs::path& folder) {
    if (::geteuid() == 0) give(folder, kNobody, kNobody);
}

void take_back(const fs::path& folder) {
    if (::geteuid() != 0) return;
    give(folder, 0, ::getegid());
    open_to_all(folder);
}

}  // namespace lockstep::lessons
