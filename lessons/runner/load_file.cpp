#include "lessons/runner/load_file.hpp"

#include <cerrno>
#include <fcntl.h>
#include <system_error>

#include <fmt/format.h>

#include "src/core/require.hpp"
#include "src/os/descriptor.hpp"
#include "src/text/utf8.hpp"

namespace lockstep::lessons {

namespace {

[[noreturn]] void fail(const std::filesystem::path& path) {
    throw std::system_error(errno, std::generic_category(),
                            "cannot read " + printable(path.string()));
}

}  // namespace

std::string load_file(const std::filesystem::path& path) {
    constexpr std::size_t kBlock = std::size_t{1} << 16;
    const os::Descriptor file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
    if (!file.open()) fail(path);
    std::string bytes;
    while (true) {
        const std::size_t size = bytes.size();
        bytes.resize(size + kBlock);
        const ssize_t got = os::read_some(file.number(), bytes.data() + size, kBlock);
        if (got < 0) fail(path);
        bytes.resize(size + static_cast<std::size_t>(got));
        if (got == 0) return bytes;
        require(bytes.size() <= kLargestInputBytes,
                "{} is larger than the {} MiB that a lesson reads",
                printable(path.string()), kLargestInputBytes >> 20);
    }
}

}  // namespace lockstep::lessons
