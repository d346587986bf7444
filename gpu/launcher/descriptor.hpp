#pragma once

#include <chrono>
#include <utility>

namespace lockstep::gpu {

using Clock = std::chrono::steady_clock;
constexpr auto kNever = Clock::time_point::max();

/// A file descriptor that is closed with its owner, and in programs this one starts.
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

  private:
    int number_ = -1;
};

/// A counter that wakes poll(): eventfd.
Descriptor make_waker();
void wake(const Descriptor& waker) noexcept;
void calm(const Descriptor& waker) noexcept;

/// A time after another.
Clock::time_point after(Clock::time_point start, double seconds);

/// Milliseconds for poll() until a time, rounded up, at least 0 and at most a minute.
int milliseconds_until(Clock::time_point time);

}  // namespace lockstep::gpu
