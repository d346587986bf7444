#pragma once

#include <optional>
#include <vector>

#include "gpu/launcher/stall_watch.hpp"

namespace lockstep::gpu {

/// How all processes get on, as rank 0 hears of it. The run stands still once all that
/// are watched do, at least one, or one is stuck.
class Paces {
  public:
    /// What makes a run stand still must last for the watch's interval: word that a
    /// process moves again may be on its way. Where the last that moved has left, it must
    /// last for the timeout: the others may have waited for that one.
    Paces(int size, const StallWatch& watch);

    void note(int rank, Pace pace, Clock::time_point now);
    /// Where the run stands still, the rank that did first.
    std::optional<int> standstill(Clock::time_point now) const;
    /// When the run will stand still if nothing changes.
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
