#include "src/os/descriptor.hpp"

#include <array>
#include <cerrno>
#include <cstdint>
#include <fcntl.h>
#include <poll.h>
#include <string>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <system_error>
#include <unistd.h>

namespace lockstep::os {

namespace {

[[noreturn]] void fail(const std::string& what) {
    throw std::system_error(errno, std::generic_category(), what);
}

}  // namespace

Descriptor& Descriptor::operator=(Descriptor&& other) noexcept {
    if (this != &other) {
        close();
        number_ = std::exchange(other.number_, -1);
    }
    return *this;
}

void Descriptor::close() noexcept {
    if (number_ >= 0) ::close(std::exchange(number_, -1));
}

Pipe make_pipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) fail("cannot make a pipe");
    return {Descriptor(ends[0]), Descriptor(ends[1])};
}

SocketPair make_socket_pair(int type) {
    std::array<int, 2> ends{-1, -1};
    if (::socketpair(AF_UNIX, type | SOCK_CLOEXEC, 0, ends.data()) != 0)
        fail("cannot make a pair of sockets");
    return {Descriptor(ends[0]), Descriptor(ends[1])};
}

Descriptor make_waker() {
    Descriptor waker(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
    if (!waker.open()) fail("cannot make an eventfd");
    return waker;
}

void wake(const Descriptor& waker) noexcept {
    const std::uint64_t one = 1;
    write_some(waker.number(), &one, sizeof one);
}

void calm(const Descriptor& waker) noexcept {
    std::uint64_t count = 0;
    read_some(waker.number(), &count, sizeof count);
}

ssize_t read_some(int descriptor, void* to, std::size_t bytes) noexcept {
    ssize_t got = 0;
    do
        got = ::read(descriptor, to, bytes);
    while (got < 0 && errno == EINTR);
    return got;
}

ssize_t write_some(int descriptor, const void* from, std::size_t bytes) noexcept {
    ssize_t written = 0;
    do
        written = ::write(descriptor, from, bytes);
    while (written < 0 && errno == EINTR);
    return written;
}

void write_all(int descriptor, std::string_view text, const char* name) {
    while (!text.empty()) {
        const ssize_t written = write_some(descriptor, text.data(), text.size());
        if (written >= 0) {
            text.remove_prefix(static_cast<std::size_t>(written));
        } else if (errno == EAGAIN) {
            pollfd writable{descriptor, POLLOUT, 0};
            ::poll(&writable, 1, -1);
        } else {
            fail(std::string("cannot write to ") + name);
        }
    }
}

}  // namespace lockstep::os
