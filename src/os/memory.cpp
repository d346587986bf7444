#include "src/os/memory.hpp"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <limits>
#include <optional>
#include <string>

namespace lockstep::os {

namespace {

constexpr std::int64_t kUnlimited = std::numeric_limits<std::int64_t>::max();

/// Finds the line of the file that begins with `word`. Returns the number after the word.
std::optional<std::int64_t> number_behind(const std::filesystem::path& path,
                                          const std::string& word) {
    std::ifstream file(path);
    std::string first;
    for (std::int64_t number = 0; file >> first; file.ignore(kUnlimited, '\n'))
        if (first == word && file >> number) return number;
    return std::nullopt;
}

/// Returns the only number in the file; none if the file says "max".
std::optional<std::int64_t> number_in(const std::filesystem::path& path) {
    std::ifstream file(path);
    std::int64_t number = 0;
    return file >> number ? std::optional(number) : std::nullopt;
}

/// The names of a control group's files, in one version of control groups.
struct GroupFiles {
    const char* root;
    const char* limit;
    const char* used;
    const char* reclaimable;  ///< a word in memory.stat
};

/// Returns the memory that is left within the limits of a group and of the groups above
/// it. In a container, the folders of groups may be missing; the container's own group is
/// at the root.
std::int64_t left_in_groups(const GroupFiles& files, const std::string& group) {
    std::int64_t left = kUnlimited;
    for (std::filesystem::path name = std::filesystem::path(group).relative_path();;
         name = name.parent_path()) {
        const std::filesystem::path folder = std::filesystem::path(files.root) / name;
        const auto limit = number_in(folder / files.limit);
        const auto used = number_in(folder / files.used);
        if (limit && used) {
            const auto reclaimable =
                number_behind(folder / "memory.stat", files.reclaimable).value_or(0);
            left =
                std::min(left, std::max<std::int64_t>(*limit - *used, 0) + reclaimable);
        }
        if (name.empty()) return left;
    }
}

/// Lines of /proc/self/cgroup are "4:memory:/group" in the first version of control
/// groups, "0::/group" in the second.
std::int64_t left_in_groups() {
    constexpr GroupFiles kFirst{"/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                "memory.usage_in_bytes", "total_inactive_file"};
    constexpr GroupFiles kSecond{"/sys/fs/cgroup", "memory.max", "memory.current",
                                 "inactive_file"};
    std::int64_t left = kUnlimited;
    std::ifstream file("/proc/self/cgroup");
    for (std::string line; std::getline(file, line);) {
        const std::size_t controllers = line.find(':');
        const std::size_t group = line.find(':', controllers + 1);
        if (group == std::string::npos) continue;
        const std::string names =
            "," + line.substr(controllers + 1, group - controllers - 1) + ",";
        if (names == ",,")
            left = std::min(left, left_in_groups(kSecond, line.substr(group + 1)));
        else if (names.find(",memory,") != std::string::npos)
            left = std::min(left, left_in_groups(kFirst, line.substr(group + 1)));
    }
    return left;
}

}  // namespace

std::int64_t available_memory() {
    constexpr std::int64_t kKiB = 1024;
    const auto free = number_behind("/proc/meminfo", "MemAvailable:");
    const auto swap = number_behind("/proc/meminfo", "SwapFree:").value_or(0);
    return std::min(free ? (*free + swap) * kKiB : kUnlimited, left_in_groups());
}

std::int64_t killed_for_memory() {
    return number_behind("/proc/vmstat", "oom_kill").value_or(0);
}

}  // namespace lockstep::os
