#pragma once

#include <atomic>
#include <cstdint>
#include <optional>
#include <vector>

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
    /// Returns the pace if it has changed since the last look; before the first it is
    /// unwatched. Time in which nobody looked (a machine asleep, a stopped process) does
    /// not count.
    std::optional<Pace> look(Clock::time_point now);

  private:
    Pace pace_now() const;

    std::atomic<bool> watching_ = false;
    std::atomic<int> pauses_ = 0;
    std::atomic<uint64_t> steps_ = 0;

    // The thread that looks has these for itself.
    Clock::duration timeout_;
    Clock::duration interval_;
    Clock::duration still_ = {};
    Clock::time_point last_look_ = {};
    uint64_t last_steps_ = 0;
    Pace last_pace_ = Pace::unwatched;
};

/// How all processes get on, as rank 0 hears of it. The run stands still once all that
/// are watched do, at least one, or one is stuck.
class Paces {
  public:
    /// A standstill counts once it has lasted for the watch's interval: word that a
    /// process moves again may be on its way. If the last that moved has left, it must
    /// last for the timeout: the others may have waited for that one.
    Paces(int size, const StallWatch& watch);

    void note(int rank, Pace pace, Clock::time_point now);
    /// Returns the rank that stood still first, if the run stands still.
    std::optional<int> standstill(Clock::time_point now) const;
    /// Returns when the run will stand still if nothing changes.
    Clock::time_point due() const { return due_; }

  private:
    bool all_still() const;

    Clock::duration interval_;
    Clock::duration timeout_;
    std::vector<Pace> paces_;      // by rank
    std::vector<int> still_ = {};  // still or stuck, longest first
    Clock::time_point due_ = kNever;
};

}  // namespace lockstep::gpu
