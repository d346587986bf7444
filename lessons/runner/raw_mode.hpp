#pragma once

#include <array>
#include <csignal>
#include <optional>
#include <termios.h>

namespace lockstep::lessons {

/// While one lives, standard input hands over single keys without showing them, and
/// signals that would end or suspend the program are kept until they are asked for. One
/// at a time.
class RawMode {
  public:
    RawMode();
    /// Puts everything back, and lets a signal act that was not asked for.
    ~RawMode();
    RawMode(const RawMode&) = delete;
    RawMode& operator=(const RawMode&) = delete;

    /// The next byte from the terminal; -1 at its end; none where a signal came first.
    std::optional<int> read();

    /// Lets the signal that came act on a terminal that is as it was. Comes back where
    /// the program goes on: after a suspension.
    void let_signal_act();

  private:
    static constexpr std::array<int, 5> kSignals{SIGINT, SIGTERM, SIGHUP, SIGQUIT,
                                                 SIGTSTP};

    void enter();
    void leave();

    termios before_{};
    std::array<struct sigaction, kSignals.size()> handlers_before_{};
    std::array<int, 2> pipe_{};
};

}  // namespace lockstep::lessons
