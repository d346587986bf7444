#pragma once

#include <cstddef>
#include <functional>
#include <stdexcept>
#include <string>
#include <utility>

#include "tests/gpu/emulator/include/nccl.h"

namespace emulated {

/// While a thread waits for a socket, it checks with this interval whether to stop.
inline constexpr int kLookAgainMilliseconds = 10;

/// An error that makes a call of NCCL fail.
class NcclTrouble : public std::runtime_error {
  public:
    NcclTrouble(ncclResult_t result, const std::string& sentence)
        : std::runtime_error(sentence), result_(result) {}
    ncclResult_t result() const { return result_; }

  private:
    ncclResult_t result_;
};

/// Owns a file descriptor.
class Descriptor {
  public:
    explicit Descriptor(int number = -1) : number_(number) {}
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&& other) noexcept {
        std::swap(number_, other.number_);
        return *this;
    }
    ~Descriptor();

    int number() const { return number_; }
    explicit operator bool() const { return number_ >= 0; }

  private:
    int number_;
};

/// Called during a wait. If it returns true, the wait ends.
using Stop = std::function<bool()>;

// Sockets of this machine without files. Each socket has a name and does not outlive its
// processes. A wait throws NcclTrouble if it is stopped or the other end is lost.

Descriptor listen_as(const std::string& name);
Descriptor accept_from(const Descriptor& listener, const Stop& stop);
/// Tries until a process listens at `name`.
Descriptor connect_to(const std::string& name, const Stop& stop);
void send_all(const Descriptor& socket, const void* data, std::size_t bytes,
              const Stop& stop);
void receive_all(const Descriptor& socket, void* data, std::size_t bytes,
                 const Stop& stop);

}  // namespace emulated
