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

/// How a program progresses.
enum class Pace : uint32_t {
    unwatched,  ///< not watched, or waits for other processes
    moving,
    still,  ///< no progress for the timeout
    stuck,  ///< no progress for ten times the timeout
};

/// Detects when a watched program stands still, and when it moves again. The program's
/// threads report progress; one other thread looks at least once every interval().
class StallWatch {
  public:
    explicit StallWatch(double timeout_seconds);

    void begin() noexcept;
    void end() noexcept { watching_ = false; }
    void progress() noexcept { steps_.fetch_add(1, std::memory_order_relaxed); }

    /// While a Pause exists, the program waits for other processes and does not count as
    /// still.
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
    /// Returns the pace if it has changed since the last look; before the first look the
    /// pace is unwatched. A long time without a look (a machine asleep, a stopped
    /// process) does not count.
    std::optional<Pace> look(Clock::time_point now);

  private:
    Pace pace_now() const;

    std::atomic<bool> watching_ = false;
    std::atomic<int> pauses_ = 0;
    std::atomic<uint64_t> steps_ = 0;

    // Used only by the thread that looks.
    Clock::duration timeout_;
    Clock::duration interval_;
    Clock::duration still_ = {};
    Clock::time_point last_look_ = {};
    uint64_t last_steps_ = 0;
    Pace last_pace_ = Pace::unwatched;
};

/// The paces of all processes, as reported to rank 0. The run stands still if some
/// processes are watched and all of these are still, or if one process is stuck.
class Paces {
  public:
    /// A standstill counts if it has lasted for the watch's interval, because a report
    /// that a process moves again may be on its way. If the last moving process has left,
    /// the standstill must last for the timeout, because the others may have waited for
    /// that process.
    Paces(int size, const StallWatch& watch);

    void note(int rank, Pace pace, Clock::time_point now);
    /// Returns the rank that stood still first, if the run stands still.
    std::optional<int> standstill(Clock::time_point now) const;
    /// Returns the time at which the run stands still if nothing changes until then.
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
