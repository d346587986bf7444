#include "lessons/grader/confine/fence.hpp"

#include <cstddef>
#include <cstdint>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::lessons {

namespace {

// As <linux/landlock.h> has them, which may be older than the system; the same numbers on
// all architectures.
constexpr long kCreateRuleset = 444;
constexpr long kAddRule = 445;
constexpr long kRestrictSelf = 446;
constexpr unsigned kAskVersion = 1;
constexpr int kPathBeneath = 1;

constexpr std::uint64_t kWriteFile = 1 << 1;
/// Removing folders and files, and making all sorts of them.
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

long version() {
    return ::syscall(kCreateRuleset, nullptr, 0, kAskVersion);
}

/// Returns what the system's version can refuse.
Ruleset refused() {
    Ruleset rules{.files = kWriteFile | kRemoveAndMake};
    const long known = version();
    if (known >= 2) rules.files |= kMoveBetweenFolders;
    if (known >= 3) rules.files |= kTruncate;
    if (known >= 4) rules.tcp = kBindAndConnect;
    if (known >= 6) rules.scoped = kSocketsAndSignals;
    return rules;
}

/// Older systems know the first fields alone.
std::size_t known_size() {
    const long known = version();
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

}  // namespace

Fence::Fence(const std::filesystem::path& folder) {
    if (version() < 1) return;
    const Ruleset wanted = refused();
    rules_ = os::Descriptor(
        static_cast<int>(::syscall(kCreateRuleset, &wanted, known_size(), 0)));
    if (!rules_.open()) return;
    allow(rules_, "/dev/null", kWriteFile);
    if (!folder.empty()) allow(rules_, folder, wanted.files);
}

bool Fence::enter() const noexcept {
    return rules_.open() && ::syscall(kRestrictSelf, rules_.number(), 0) == 0;
}

bool Fence::works() {
    return version() >= 1;
}

}  // namespace lockstep::lessons
