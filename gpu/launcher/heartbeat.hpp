#pragma once

#include "gpu/launcher/connection.hpp"

namespace lockstep::gpu {

/// When the control thread of a process beats: says to the others that it runs.
class Heartbeat {
  public:
    explicit Heartbeat(double timeout_seconds);

    /// Whether it is time to beat. The next beat is due an interval after this one,
    /// however late this one came.
    bool strikes(Clock::time_point now);
    Clock::time_point due() const { return due_; }
    /// How many beats a time lasts, rounded up.
    int beats_in(Clock::duration time) const;
    /// After how many beats without a word from another it is lost.
    int patience() const;

  private:
    Clock::duration timeout_;
    Clock::duration interval_;
    Clock::time_point due_ = {};
};

/// How long another process has said nothing, counted in this one's beats: time in which
/// this one did not run itself does not count.
class Silence {
  public:
    /// At each beat: sends it, and gives for how many nothing has come.
    int beat(Connection& line);

  private:
    int beats_ = 0;
};

/// What to say of a process that is lost since it is silent.
std::string silence_text(int rank);

}  // namespace lockstep::gpu
