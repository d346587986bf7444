#include "lessons/grader/confine/room.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <sched.h>
#include <string_view>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/grader/confine/claimed_user.hpp"
#include "lessons/grader/confine/confined_process.hpp"
#include "src/os/child.hpp"

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

/// The room is built in this folder, and then becomes the root. Every system has this
/// folder, and no view contains anything in it.
constexpr const char* kRoot = "/proc";

// Constants of <linux/mount.h>, which may be older than the system.
constexpr long kMountSetAttributes = 442;
constexpr unsigned kRecursive = 0x8000;
struct MountAttributes {
    std::uint64_t set = 0;
    std::uint64_t clear = 0;
    std::uint64_t propagation = 0;
    std::uint64_t user_namespace = 0;
};
constexpr std::uint64_t kReadOnly = 1;
constexpr std::uint64_t kNoSetUser = 2;

bool bind(const char* source, const char* target, bool writable) noexcept {
    if (::mount(source, target, nullptr, MS_BIND | MS_REC, nullptr) != 0) return false;
    const MountAttributes attributes{.set = kNoSetUser |
                                            (writable ? std::uint64_t{0} : kReadOnly)};
    if (::syscall(kMountSetAttributes, AT_FDCWD, target, kRecursive, &attributes,
                  sizeof attributes) == 0)
        return true;
    // Linux before 5.12 does not have mount_setattr().
    const unsigned long read_only =
        writable ? 0UL : static_cast<unsigned long>(MS_RDONLY);
    return ::mount(nullptr, target, nullptr, MS_REMOUNT | MS_BIND | MS_NOSUID | read_only,
                   nullptr) == 0;
}

bool write_to(const char* file, std::string_view text) noexcept {
    const int descriptor = ::open(file, O_WRONLY | O_CLOEXEC);
    const bool written =
        descriptor >= 0 && ::write(descriptor, text.data(), text.size()) ==
                               static_cast<ssize_t>(text.size());
    ::close(descriptor);
    return written;
}

bool make_file(const char* path) noexcept {
    const int descriptor = ::open(path, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0444);
    if (descriptor < 0) return errno == EEXIST;
    ::close(descriptor);
    return true;
}

}  // namespace

Room::Room(const View& view) {
    for (const fs::path& path : view.reads)
        if (!is_below(path, view.reads)) add(path, false);
    for (const fs::path& path : view.writes)
        add(path, true);
    add("/dev/null", true);
    for (const fs::path& path : view.hides)
        if (is_below(path, view.reads))
            things_.push_back(
                {fs::is_directory(path) ? Kind::hidden_folder : Kind::hidden_file, false,
                 "/dev/null", kRoot + path.string()});
    // Folders come before their content.
    std::ranges::stable_sort(things_, {}, [](const Thing& thing) {
        return std::ranges::count(thing.target, '/');
    });
    if (ClaimedUser::works()) return;
    // Programs of user 0 would have all capabilities in the room.
    const auto map = [](unsigned id) {
        return fmt::format("{} {} 1\n", id == 0 ? kNobody : id, id);
    };
    user_map_ = map(::geteuid());
    group_map_ = map(::getegid());
}

void Room::add(const fs::path& path, bool writable) {
    std::string target = kRoot;
    for (const fs::path& part : path.parent_path().relative_path()) {
        target += "/" + part.string();
        if (std::ranges::find(folders_, target) == folders_.end())
            folders_.push_back(target);
    }
    Thing thing{Kind::folder, writable, path.string(), kRoot + path.string()};
    std::error_code error;
    if (fs::is_symlink(path, error)) {
        thing.kind = Kind::link;
        thing.leads_to = fs::read_symlink(path, error).string();
    } else if (!fs::is_directory(path, error)) {
        thing.kind = Kind::file;
    }
    things_.push_back(thing);
}

pid_t Room::fork() noexcept {
    const unsigned long namespaces =
        CLONE_NEWNS | CLONE_NEWPID | CLONE_NEWNET | CLONE_NEWIPC |
        (ClaimedUser::works() ? 0UL : static_cast<unsigned long>(CLONE_NEWUSER));
    return static_cast<pid_t>(
        ::syscall(SYS_clone, namespaces | SIGCHLD, nullptr, nullptr, 0, 0));
}

bool Room::map_user() const noexcept {
    if (user_map_.empty()) return true;
    // Only a dumpable process can write to its own files in /proc.
    ::prctl(PR_SET_DUMPABLE, 1);
    const bool mapped = write_to("/proc/self/setgroups", "deny") &&
                        write_to("/proc/self/gid_map", group_map_) &&
                        write_to("/proc/self/uid_map", user_map_);
    ::prctl(PR_SET_DUMPABLE, 0);
    return mapped;
}

bool Room::bring(const Thing& thing) noexcept {
    const char* const target = thing.target.c_str();
    const auto make_folder = [&] {
        return ::mkdir(target, 0755) == 0 || errno == EEXIST;
    };
    const auto bind_there = [&] {
        return bind(thing.source.c_str(), target, thing.writable);
    };
    switch (thing.kind) {
        case Kind::folder:
            return make_folder() && bind_there();
        case Kind::file:
            return make_file(target) && bind_there();
        case Kind::link:
            return ::symlink(thing.leads_to.c_str(), target) == 0 || errno == EEXIST ||
                   errno == EROFS;
        case Kind::hidden_folder:
            return ::mount("hidden", target, "tmpfs", MS_NOSUID | MS_NODEV | MS_RDONLY,
                           "size=4k,mode=555") == 0;
        case Kind::hidden_file:
            return bind_there();
    }
    return false;
}

bool Room::furnish() const noexcept {
    for (const std::string& folder : folders_)
        if (::mkdir(folder.c_str(), 0755) != 0 && errno != EEXIST) return false;
    return std::ranges::all_of(things_, bring);
}

bool Room::enter() const noexcept {
    if (!map_user()) return false;
    // Mounts made here are not visible outside.
    if (::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) != 0) return false;
    if (::mount("room", kRoot, "tmpfs", MS_NOSUID | MS_NODEV, "mode=755") != 0)
        return false;
    if (!furnish()) return false;
    if (::chdir(kRoot) != 0 || ::syscall(SYS_pivot_root, ".", ".") != 0 ||
        ::umount2(".", MNT_DETACH) != 0 || ::chdir("/") != 0)
        return false;
    return ::mount(nullptr, "/", nullptr,
                   MS_REMOUNT | MS_BIND | MS_RDONLY | MS_NOSUID | MS_NODEV, nullptr) == 0;
}

bool Room::works() {
    static const bool works = [] {
        const Room room({system_libraries(), {}});
        const pid_t child = fork();
        if (child == 0) ::_exit(room.enter() ? 0 : 1);
        if (child < 0) return false;
        const int status = os::wait_for(child);
        return WIFEXITED(status) && WEXITSTATUS(status) == 0;
    }();
    return works;
}

}  // namespace lockstep::lessons
