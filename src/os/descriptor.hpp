#pragma once

#include <cstddef>
#include <string_view>
#include <sys/types.h>
#include <utility>

namespace lockstep::os {

/// A file descriptor that is closed when its owner is destroyed. Programs that this
/// program starts do not inherit it.
class Descriptor {
  public:
    Descriptor() = default;
    explicit Descriptor(int number) : number_(number) {}
    ~Descriptor() { close(); }
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept;

    int number() const { return number_; }
    bool open() const { return number_ >= 0; }
    void close() noexcept;
    /// Returns the number; the caller closes it.
    int release() { return std::exchange(number_, -1); }

  private:
    int number_ = -1;
};

struct Pipe {
    Descriptor reading;
    Descriptor writing;
};
/// Throws std::system_error.
Pipe make_pipe();

/// Two sockets that are connected to each other.
struct SocketPair {
    Descriptor ours;
    Descriptor theirs;
};
/// `type` is SOCK_STREAM or SOCK_SEQPACKET. Throws std::system_error.
SocketPair make_socket_pair(int type);

/// A counter that wakes poll(): an eventfd. Throws std::system_error.
Descriptor make_waker();
void wake(const Descriptor& waker) noexcept;
void calm(const Descriptor& waker) noexcept;

/// Like read() and write(), but begin again if a signal interrupts them.
ssize_t read_some(int descriptor, void* to, std::size_t bytes) noexcept;
ssize_t write_some(int descriptor, const void* from, std::size_t bytes) noexcept;

/// Writes all of the text, and waits while the descriptor accepts no bytes. Throws
/// std::system_error if writing fails; the message calls the descriptor `name`.
void write_all(int descriptor, std::string_view text, const char* name);

}  // namespace lockstep::os
