#include "src/report/files.hpp"

#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep {

namespace {

[[noreturn]] void fail(int error, const std::filesystem::path& path) {
    throw std::system_error(error, std::generic_category(), path.string());
}

/// A hidden name in the same folder, so that the rename at the end stays on one file
/// system.
std::filesystem::path name_beside(const std::filesystem::path& path) {
    static std::atomic<unsigned> count{0};
    return path.parent_path() / fmt::format(".{}.{}-{}.part", path.filename().string(),
                                            getpid(), count.fetch_add(1));
}

}  // namespace

WholeFile::WholeFile(std::filesystem::path path)
    : path_(std::move(path)), temporary_(name_beside(path_)) {
    descriptor_ = open(temporary_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (descriptor_ < 0) fail(errno, path_);
}

WholeFile::~WholeFile() {
    if (descriptor_ >= 0) close(descriptor_);
    if (!temporary_.empty()) unlink(temporary_.c_str());
}

void WholeFile::write(const std::byte* data, std::size_t size) {
    while (size > 0) {
        const ssize_t written = os::write_some(descriptor_, data, size);
        if (written < 0) fail(errno, path_);
        data += written;
        size -= static_cast<std::size_t>(written);
    }
}

void WholeFile::write(std::string_view text) {
    write(reinterpret_cast<const std::byte*>(text.data()), text.size());
}

void WholeFile::finish() {
    if (close(std::exchange(descriptor_, -1)) != 0) fail(errno, path_);
    if (rename(temporary_.c_str(), path_.c_str()) != 0) fail(errno, path_);
    temporary_.clear();
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
    WholeFile file(path);
    file.write(text);
    file.finish();
}

InputFile::InputFile(std::filesystem::path path) : path_(std::move(path)) {
    // Without O_NONBLOCK, opening a pipe would wait for its writer.
    descriptor_ = open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor_ < 0) fail(errno, path_);
    struct stat status {};
    const int error = fstat(descriptor_, &status) == 0 ? 0 : errno;
    if (error == 0 && S_ISREG(status.st_mode)) {
        size_ = static_cast<std::uint64_t>(status.st_size);
        return;
    }
    close(descriptor_);
    if (error != 0) fail(error, path_);
    throw UsageError(path_.string() + ": this is not a file");
}

InputFile::~InputFile() {
    close(descriptor_);
}

void InputFile::read(void* destination, std::uint64_t size) {
    auto* to = static_cast<std::byte*>(destination);
    while (size > 0) {
        const ssize_t got =
            os::read_some(descriptor_, to, static_cast<std::size_t>(size));
        if (got <= 0) fail(got < 0 ? errno : EIO, path_);
        to += got;
        size -= static_cast<std::uint64_t>(got);
    }
}

std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
    InputFile file(path);
    require(file.size() <= limit_bytes, "{}: {} bytes, where at most {} are expected",
            path.string(), file.size(), limit_bytes);
    std::string text(static_cast<std::size_t>(file.size()), '\0');
    file.read(text.data(), file.size());
    return text;
}

}  // namespace lockstep
