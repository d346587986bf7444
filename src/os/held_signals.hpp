#pragma once

#include <optional>
#include <signal.h>
#include <sys/signalfd.h>

#include "src/os/descriptor.hpp"

namespace lockstep::os {

/// While one lives, the signals that concern a process that waits for other programs wait
/// to be taken: SIGCHLD, and those of SIGINT, SIGTERM and SIGHUP that are not ignored. It
/// is to be made on the main thread, before others are started.
class HeldSignals {
  public:
    /// Throws std::system_error.
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;

    /// Returns the mask that programs which are started meanwhile should have.
    const sigset_t& mask_before() const { return mask_before_; }

    /// poll() finds this readable while a signal waits.
    int descriptor() const { return descriptor_.number(); }
    /// The next signal that waits, if one does.
    std::optional<signalfd_siginfo> take() const;

  private:
    sigset_t mask_before_ = {};
    struct sigaction child_action_ = {};
    Descriptor descriptor_;
};

/// Returns true if another process sent the signal to this one. The terminal's own reach
/// all its processes: nobody need pass them on.
inline bool sent_by_process(const signalfd_siginfo& signal) {
    return signal.ssi_code <= 0;
}

}  // namespace lockstep::os
