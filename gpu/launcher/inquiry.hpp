#pragma once

#include <string>
#include <vector>

#include "gpu/launcher/stall_watch.hpp"

namespace lockstep::gpu {

/// What rank 0 asks of all processes once one has stalled: what they are doing.
class Inquiry {
  public:
    Inquiry(int size, int stalled_rank, Clock::time_point due);

    void answer(int rank, std::string description);
    /// No answer is to be expected any more.
    void give_up(int rank) { answer(rank, {}); }

    /// All have answered, or their time is over.
    bool finished(Clock::time_point now) const { return waiting_ == 0 || now >= due_; }
    Clock::time_point due() const { return due_; }
    int stalled_rank() const { return stalled_rank_; }
    /// In rank order; empty where there was no answer.
    const std::vector<std::string>& descriptions() const { return descriptions_; }

  private:
    int stalled_rank_;
    Clock::time_point due_;
    std::vector<std::string> descriptions_;
    std::vector<bool> answered_;
    int waiting_;
};

}  // namespace lockstep::gpu
