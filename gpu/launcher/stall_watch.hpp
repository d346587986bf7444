#pragma once

#include <atomic>
#include <cstdint>
#include <optional>

#include "src/os/deadline.hpp"

namespace lockstep::gpu {

using os::after;
using os::Clock;
using os::kNever;

/// How a program gets on.
enum class Pace : uint32_t {
    unwatched,  ///< nobody asks, or it waits for other processes
    moving,
    still,  ///< no progress for the timeout
    stuck,  ///< nor for ten times as long
};
constexpr uint64_t kPaces = 4;

/// Tells when a program that is watched stands still, and when it moves again. The
/// program's threads report; one other thread looks, every interval() or more often.
class StallWatch {
  public:
    explicit StallWatch(double timeout_seconds);

    void begin() noexcept;
    void end() noexcept { watching_ = false; }
    void progress() noexcept { steps_.fetch_add(1, std::memory_order_relaxed); }

    /// While one lives, the program waits for other processes: it does not stand still.
    class Pause {
      public:
        explicit Pause(StallWatch& watch) : watch_(watch) { ++watch_.pauses_; }
        ~Pause();
        Pause(const Pause&) = delete;
        Pause& operator=(const Pause&) = delete;

      private:
        StallWatch& watch_;
    };

    bool watching() const noexcept { return watching_; }
    Clock::duration timeout() const { return timeout_; }
    Clock::duration interval() const { return interval_; }
    /// The pace where it has changed since the last look; unwatched before the first.
    /// Time in which nobody looked (a machine asleep, a stopped process) does not count.
    std::optional<Pace> look(Clock::time_point now);

  private:
    Pace pace_now() const;

    std::atomic<bool> watching_ = false;
    std::atomic<int> pauses_ = 0;
    std::atomic<uint64_t> steps_ = 0;

    // Of the thread that looks.
    Clock::duration timeout_;
    Clock::duration interval_;
    Clock::duration still_ = {};
    Clock::time_point last_look_ = {};
    uint64_t last_steps_ = 0;
    Pace last_pace_ = Pace::unwatched;
};

}  // namespace lockstep::gpu
