#pragma once

#include <atomic>
#include <cstdint>

#include "gpu/launcher/descriptor.hpp"

namespace lockstep::gpu {

/// Tells when a program that is watched stands still. The program's threads report; one
/// other thread looks, every interval() or more often.
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
    Clock::duration interval() const { return interval_; }
    /// True once for each time that the program has stood still for the timeout. Time in
    /// which nobody looked (a machine asleep, a stopped process) does not count.
    bool stalled(Clock::time_point now);

  private:
    std::atomic<bool> watching_ = false;
    std::atomic<int> pauses_ = 0;
    std::atomic<uint64_t> steps_ = 0;

    // Of the thread that looks.
    Clock::duration timeout_;
    Clock::duration interval_;
    Clock::duration still_ = {};
    Clock::time_point last_look_ = {};
    uint64_t last_steps_ = 0;
};

}  // namespace lockstep::gpu
