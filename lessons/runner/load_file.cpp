#include "lessons/runner/load_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <system_error>
#include <unistd.h>

#include <fmt/format.h>

#include "lessons/runner/utf8.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

namespace {

class OpenFile {
  public:
    explicit OpenFile(const std::filesystem::path& path)
        : path_(path), descriptor_(::open(path.c_str(), O_RDONLY | O_CLOEXEC)) {
        if (descriptor_ < 0) fail();
    }
    ~OpenFile() { ::close(descriptor_); }
    OpenFile(const OpenFile&) = delete;
    OpenFile& operator=(const OpenFile&) = delete;

    /// Bytes read; 0 at the end.
    std::size_t read(char* buffer, std::size_t bytes) {
        ssize_t got = 0;
        do
            got = ::read(descriptor_, buffer, bytes);
        while (got < 0 && errno == EINTR);
        if (got < 0) fail();
        return static_cast<std::size_t>(got);
    }

  private:
    [[noreturn]] void fail() const {
        throw std::system_error(errno, std::generic_category(),
                                "cannot read " + printable(path_.string()));
    }

    std::filesystem::path path_;
    int descriptor_;
};

}  // namespace

std::string load_file(const std::filesystem::path& path) {
    constexpr std::size_t kBlock = std::size_t{1} << 16;
    OpenFile file(path);
    std::string bytes;
    while (true) {
        const std::size_t size = bytes.size();
        bytes.resize(size + kBlock);
        const std::size_t got = file.read(bytes.data() + size, kBlock);
        bytes.resize(size + got);
        if (got == 0) return bytes;
        require(bytes.size() <= kLargestInputBytes,
                "{} is larger than the {} MiB that a lesson reads",
                printable(path.string()), kLargestInputBytes >> 20);
    }
}

}  // namespace lockstep::lessons
