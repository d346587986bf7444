#pragma once

#include "sim/check/rollcall.hpp"

namespace lockstep::sim {

/// Compares what programs say with expect_replicated; always on.
class Expectations {
  public:
    Expectations();

    /// Notes the member's copy of what should be the same for all members of the team.
    void note(const Team& team, int member, const Tensor& tensor, const std::string& name,
              SourceLine at, Picoseconds now);
    /// The run is quiet: throws FaultError if ranks differ.
    void compare() { rollcall_.compare(); }
    /// Every rank has ended: throws FaultError if one has not called.
    void run_ended() const;

  private:
    Rollcall rollcall_;
};

}  // namespace lockstep::sim
