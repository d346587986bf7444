#include "lessons/grader/confine/fence.hpp"

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <iterator>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::lessons {

namespace fs = std::filesystem;

namespace {

// Constants of <linux/landlock.h>, which may be older than the system. The numbers are
// the same on all architectures.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr unsigned kAskVersion = 1;
constexpr int kPathBeneath = 1;

constexpr std::uint64_t kExecute = 1 << 0;
constexpr std::uint64_t kWriteFile = 1 << 1;
constexpr std::uint64_t kReadFile = 1 << 2;
constexpr std::uint64_t kReadFolder = 1 << 3;
/// The rights to remove folders and files, and to make files of all kinds.
constexpr std::uint64_t kRemoveAndMake = 0x1FF0;
constexpr std::uint64_t kMoveBetweenFolders = 1 << 13;  // version 2
constexpr std::uint64_t kTruncate = 1 << 14;            // version 3
constexpr std::uint64_t kBindAndConnect = 3;            // version 4
constexpr std::uint64_t kSocketsAndSignals = 3;         // version 6

struct Ruleset {
    std::uint64_t files = 0;
    std::uint64_t tcp = 0;
    std::uint64_t scoped = 0;
};

struct [[gnu::packed]] PathBeneath {
    std::uint64_t allowed;
    std::int32_t folder;
};

/// Returns the rights that the system's version can refuse.
Ruleset refused() {
    Ruleset rules{.files =
                      kExecute | kReadFile | kReadFolder | kWriteFile | kRemoveAndMake};
    const int known = Fence::version();
    if (known >= 2) rules.files |= kMoveBetweenFolders;
    if (known >= 3) rules.files |= kTruncate;
    if (known >= 4) rules.tcp = kBindAndConnect;
    if (known >= 6) rules.scoped = kSocketsAndSignals;
    return rules;
}

/// Returns the size of those fields of a Ruleset that this system accepts.
std::size_t known_size() {
    const int known = Fence::version();
    return known >= 6   ? sizeof(Ruleset)
           : known >= 4 ? offsetof(Ruleset, scoped)
                        : offsetof(Ruleset, tcp);
}

void allow(const os::Descriptor& rules, const std::filesystem::path& path,
           std::uint64_t what) {
    const os::Descriptor opened(::open(path.c_str(), O_PATH | O_CLOEXEC));
    const PathBeneath rule{what, opened.number()};
    ::syscall(kAddRule, rules.number(), kPathBeneath, &rule, 0);
}

/// Returns the path, or, if some of its files are hidden, the paths of all others. A
/// folder's rule holds for everything in it.
std::vector<fs::path> without(const fs::path& path, const std::vector<fs::path>& hides) {
    std::error_code error;
    const fs::path real = fs::canonical(path, error);
    if (error || std::ranges::find(hides, real) != hides.end()) return {};
    if (std::ranges::none_of(
            hides, [&](const fs::path& hidden) { return is_below(hidden, {real}); }))
        return {path};
    std::vector<fs::path> rest;
    for (fs::directory_iterator each(real, error), end; !error && each != end;
         each.increment(error))
        // A link may lead back here, or elsewhere; what it leads to has its own rule.
        if (!each->is_symlink(error))
            std::ranges::move(without(each->path(), hides), std::back_inserter(rest));
    return rest;
}

}  // namespace

Fence::Fence(const View& view) : exists_(version() > 0) {
    if (!exists_) return;
    const Ruleset wanted = refused();
    rules_ = os::Descriptor(
        static_cast<int>(::syscall(kCreateRuleset, &wanted, known_size(), 0)));
    if (!rules_.open()) return;
    allow(rules_, "/dev/null", kReadFile | kWriteFile);
    for (const fs::path& read : view.reads)
        for (const fs::path& path : without(read, view.hides))
            allow(rules_, path,
                  fs::is_directory(path) ? kExecute | kReadFile | kReadFolder
                                         : kExecute | kReadFile);
    for (const fs::path& path : view.writes)
        allow(rules_, path, wanted.files);
}

bool Fence::enter() const noexcept {
    if (!exists_) return true;
    return rules_.open() && ::syscall(kRestrictSelf, rules_.number(), 0) == 0;
}

int Fence::version() {
    const long version = ::syscall(kCreateRuleset, nullptr, 0, kAskVersion);
    return static_cast<int>(std::max(version, 0L));
}

}  // namespace lockstep::lessons
