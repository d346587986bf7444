#include "src/report/files.hpp"

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <system_error>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/core/units.hpp"
#include "src/os/descriptor.hpp"

namespace lockstep {

namespace {

[[noreturn]] void fail(int error, const std::filesystem::path& path) {
    throw std::system_error(error, std::generic_category(), path.string());
}

/// Returns the place of the file. For a link, this is the file that the link names, so
/// that the link stays. Refuses a place with something other than a file: a device or a
/// pipe would be replaced.
std::filesystem::path place_of(const std::filesystem::path& path) {
    struct stat status {};
    if (lstat(path.c_str(), &status) != 0) return path;
    std::error_code error;
    std::filesystem::path place = std::filesystem::canonical(path, error);
    if (error) fail(error.value(), path);
    if (stat(place.c_str(), &status) != 0) fail(errno, path);
    require(S_ISREG(status.st_mode),
            [&] { return path.string() + ": this exists and is not a file"; });
    return place;
}

/// Opens the path if it leads to a pipe or a terminal; else returns no descriptor.
os::Descriptor opened_stream(const std::filesystem::path& path) {
    if (!leads_to_stream(path)) return {};
    // Without O_NONBLOCK, opening a pipe would wait for a reader.
    os::Descriptor stream(
        open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    if (!stream.open() && errno == ENXIO)
        throw UsageError(path.string() + ": this is a pipe from which nobody reads");
    if (!stream.open()) fail(errno, path);
    fcntl(stream.number(), F_SETFL, fcntl(stream.number(), F_GETFL) & ~O_NONBLOCK);
    return stream;
}

/// Returns a hidden name in the same folder, so that the rename at the end stays on one
/// file system.
std::filesystem::path name_beside(const std::filesystem::path& path) {
    static std::atomic<unsigned> count{0};
    return path.parent_path() / fmt::format(".{}.{}-{}{}", path.filename().string(),
                                            getpid(), count.fetch_add(1), kUnfinished);
}

std::filesystem::path folder_of(const std::filesystem::path& path) {
    return path.has_parent_path() ? path.parent_path() : ".";
}

/// Writes a folder's list of names to the disk, so that it survives a power failure.
void keep_names(const std::filesystem::path& folder) {
    const os::Descriptor names(open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!names.open() || fsync(names.number()) != 0) fail(errno, folder);
}

}  // namespace

bool leads_to_stream(const std::filesystem::path& path) {
    struct stat status {};
    if (stat(path.c_str(), &status) != 0) return false;
    if (!S_ISCHR(status.st_mode)) return S_ISFIFO(status.st_mode);
    const os::Descriptor device(
        open(path.c_str(), O_WRONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK));
    return device.open() && isatty(device.number()) != 0;
}

WholeFile::WholeFile(std::filesystem::path path)
    : path_(std::move(path)), descriptor_(opened_stream(path_).release()) {
    if (descriptor_ >= 0) return;
    place_ = place_of(path_);
    temporary_ = name_beside(place_);
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
    if (temporary_.empty()) return;  // a stream
    if (rename(temporary_.c_str(), place_.c_str()) != 0) fail(errno, path_);
    temporary_.clear();
}

void WholeFile::finish_durably() {
    if (temporary_.empty()) return finish();
    if (fsync(descriptor_) != 0) fail(errno, path_);
    finish();
    keep_names(folder_of(place_));
}

void make_durable_folder(const std::filesystem::path& path) {
    const std::filesystem::path parent = folder_of(path);
    if (!std::filesystem::is_directory(path)) {
        make_durable_folder(parent);
        if (mkdir(path.c_str(), 0777) != 0 && errno != EEXIST) fail(errno, path);
    }
    keep_names(parent);
}

void remove_durably(const std::filesystem::path& path) {
    if (unlink(path.c_str()) == 0)
        keep_names(folder_of(path));
    else if (errno != ENOENT)
        fail(errno, path);
}

void write_text_file(const std::filesystem::path& path, std::string_view text) {
    WholeFile file(path);
    file.write(text);
    file.finish();
}

void write_durable_text_file(const std::filesystem::path& path, std::string_view text) {
    WholeFile file(path);
    file.write(text);
    file.finish_durably();
}

void require_writable_file(const std::filesystem::path& path) {
    if (!leads_to_stream(path)) WholeFile(path).write("x");
}

namespace {

/// Without O_NONBLOCK, opening a pipe would wait for its writer.
os::Descriptor opened(const std::filesystem::path& path) {
    os::Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
    if (!file.open()) fail(errno, path);
    return file;
}

struct stat status_of(const os::Descriptor& file, const std::filesystem::path& path) {
    struct stat status {};
    if (fstat(file.number(), &status) != 0) fail(errno, path);
    return status;
}

void require_regular(const struct stat& status, const std::filesystem::path& path) {
    if (!S_ISREG(status.st_mode))
        throw UsageError(path.string() + ": this is not a file");
}

}  // namespace

InputFile::InputFile(std::filesystem::path path)
    : path_(std::move(path)), file_(opened(path_)) {
    const struct stat status = status_of(file_, path_);
    require_regular(status, path_);
    size_ = static_cast<std::uint64_t>(status.st_size);
}

void InputFile::read(void* destination, std::uint64_t size) {
    auto* to = static_cast<std::byte*>(destination);
    while (size > 0) {
        const ssize_t got =
            os::read_some(file_.number(), to, static_cast<std::size_t>(size));
        if (got <= 0) fail(got < 0 ? errno : EIO, path_);
        to += got;
        size -= static_cast<std::uint64_t>(got);
    }
}

void InputFile::read_at(std::uint64_t begin, void* destination, std::uint64_t size) {
    auto* to = static_cast<std::byte*>(destination);
    while (size > 0) {
        const ssize_t got = pread(file_.number(), to, static_cast<std::size_t>(size),
                                  static_cast<off_t>(begin));
        if (got < 0 && errno == EINTR) continue;
        if (got <= 0) fail(got < 0 ? errno : EIO, path_);
        to += got;
        begin += static_cast<std::uint64_t>(got);
        size -= static_cast<std::uint64_t>(got);
    }
}

namespace {

/// Waits until a pipe or a terminal has more to read. Throws after half a minute.
void wait_for_more(const os::Descriptor& file, const std::filesystem::path& path) {
    constexpr int kPatienceSeconds = 30;
    pollfd readable{file.number(), POLLIN, 0};
    const int ready = poll(&readable, 1, kPatienceSeconds * 1000);
    if (ready < 0 && errno != EINTR) fail(errno, path);
    require(ready != 0, "{}: nothing has come from this pipe for {} seconds",
            path.string(), kPatienceSeconds);
}

std::string read_to_end(const os::Descriptor& file, const struct stat& status,
                        const std::filesystem::path& path, std::uint64_t limit_bytes) {
    constexpr std::uint64_t kBlock = 1 << 16;
    const auto require_within = [&](std::uint64_t bytes) {
        require(bytes <= limit_bytes, [&] {
            return fmt::format("{} is larger than {}, the limit for such a file",
                               path.string(),
                               bytes_text(static_cast<std::int64_t>(limit_bytes)));
        });
    };
    const bool is_file = S_ISREG(status.st_mode);
    const auto size = is_file ? static_cast<std::uint64_t>(status.st_size) : 0;
    require_within(size);
    std::string text;
    std::uint64_t expected = size + 1;  // one byte more, to see the end of the file
    while (true) {
        const std::size_t before = text.size();
        text.resize(before + static_cast<std::size_t>(expected));
        const ssize_t got =
            os::read_some(file.number(), text.data() + before, text.size() - before);
        const int error = got < 0 ? errno : 0;
        text.resize(before + static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
        require_within(text.size());
        if (error != 0 && error != EAGAIN) fail(error, path);
        if (error == EAGAIN) wait_for_more(file, path);
        if (got == 0) return text;
        expected = kBlock;
    }
}

}  // namespace

std::string read_text_file(const std::filesystem::path& path, std::uint64_t limit_bytes) {
    const os::Descriptor file = opened(path);
    const struct stat status = status_of(file, path);
    require_regular(status, path);
    return read_to_end(file, status, path, limit_bytes);
}

std::string read_text_input(const std::filesystem::path& path,
                            std::uint64_t limit_bytes) {
    const os::Descriptor file = opened(path);
    const struct stat status = status_of(file, path);
    std::string text = read_to_end(file, status, path, limit_bytes);
    require(!text.empty() || !S_ISFIFO(status.st_mode),
            "{}: no program writes to this pipe; a file, or a pipe with a writer, is "
            "expected",
            path.string());
    return text;
}

}  // namespace lockstep
