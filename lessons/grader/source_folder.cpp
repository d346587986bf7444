#include "lessons/grader/source_folder.hpp"

#include <cerrno>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

constexpr int kOnce = O_RDONLY | O_NOFOLLOW | O_CLOEXEC;

SourceFolder::File problem(const std::string& name, const std::string& what) {
    return {std::nullopt, name + " " + what};
}

/// Throws what `errno` says: a file system that fails is not the student's mistake.
[[noreturn]] void machines_trouble(const std::string& name) {
    throw MissingError(fmt::format("{} cannot be read: {}", name, std::strerror(errno)));
}

SourceFolder::File read_below(int folder, const std::string& path,
                              const std::string& name, std::uint64_t most_bytes) {
    constexpr const char* kNoFile =
        "is not a regular file (a link or a folder is not accepted)";
    // A pipe is opened without waiting for its other end.
    const os::Descriptor file(::openat(folder, path.c_str(), kOnce | O_NONBLOCK));
    if (!file.open()) {
        if (errno == ENOENT || errno == ENOTDIR) return problem(name, "is not there");
        if (errno == ELOOP || errno == ENXIO) return problem(name, kNoFile);
        if (errno == EACCES)
            return problem(name, std::string("cannot be read: ") + std::strerror(errno));
        machines_trouble(name);
    }
    struct stat status = {};
    if (::fstat(file.number(), &status) != 0 || !S_ISREG(status.st_mode))
        return problem(name, kNoFile);
    std::string bytes;
    // The file may grow meanwhile, so its size says nothing.
    for (ssize_t got = 1; got > 0 && bytes.size() <= most_bytes;) {
        constexpr std::size_t kAtOnce = 1 << 16;
        const std::size_t before = bytes.size();
        bytes.resize(before + kAtOnce);
        got = os::read_some(file.number(), bytes.data() + before, kAtOnce);
        bytes.resize(before + static_cast<std::size_t>(got > 0 ? got : 0));
        if (got < 0) machines_trouble(name);
    }
    if (bytes.size() > most_bytes)
        return problem(name, fmt::format("has more than {} MiB", most_bytes >> 20));
    return {std::move(bytes), ""};
}

}  // namespace

SourceFolder::SourceFolder(const std::filesystem::path& path)
    : folder_(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC)) {
    if (!folder_.open()) machines_trouble(path.string());
}

SourceFolder::File SourceFolder::read(const std::string& name,
                                      std::uint64_t most_bytes) const {
    return read_below(folder_.number(), name, name, most_bytes);
}

bool SourceFolder::has_one_of(const std::vector<std::string>& names) const {
    for (const std::string& name : names) {
        struct stat status = {};
        if (::fstatat(folder_.number(), name.c_str(), &status, AT_SYMLINK_NOFOLLOW) == 0)
            return true;
    }
    return false;
}

std::vector<SourceFolder> SourceFolder::folders_with_one_of(
    const std::vector<std::string>& names) const {
    constexpr std::size_t kMost = 2;
    std::vector<SourceFolder> found;
    // The stream closes its descriptor, and has its own place in the folder.
    const int again = ::openat(folder_.number(), ".", kOnce | O_DIRECTORY);
    const std::unique_ptr<DIR, int (*)(DIR*)> stream(
        again < 0 ? nullptr : ::fdopendir(again), ::closedir);
    if (!stream) return found;
    while (const dirent* const entry = ::readdir(stream.get())) {
        const std::string name(entry->d_name);
        if (name == "." || name == "..") continue;
        SourceFolder inner(os::Descriptor(
            ::openat(folder_.number(), name.c_str(), kOnce | O_DIRECTORY)));
        if (inner.folder_.open() && inner.has_one_of(names))
            found.push_back(std::move(inner));
        if (found.size() == kMost) break;
    }
    return found;
}

SourceFolder::File read_source(const std::filesystem::path& file,
                               std::uint64_t most_bytes) {
    return read_below(AT_FDCWD, file.string(), file.filename().string(), most_bytes);
}

}  // namespace lockstep::lessons
