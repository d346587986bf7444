#pragma once

#include <optional>
#include <signal.h>
#include <sys/signalfd.h>

#include "src/os/descriptor.hpp"

namespace lockstep::os {

/// While it lives, it holds signals until take() returns them: SIGCHLD, and each of
/// SIGINT, SIGTERM and SIGHUP that is not ignored. For a process that waits for other
/// programs. Make it on the main thread, before other threads are started.
class HeldSignals {
  public:
    /// Throws std::system_error.
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;

    /// Returns the signal mask for programs that are started meanwhile.
    const sigset_t& mask_before() const { return mask_before_; }

    /// poll() reports this descriptor as readable while a signal waits.
    int descriptor() const { return descriptor_.number(); }
    /// Returns the next signal that is held, if there is one.
    std::optional<signalfd_siginfo> take() const;

  private:
    sigset_t mask_before_ = {};
    struct sigaction child_action_ = {};
    Descriptor descriptor_;
};

/// Returns true if another process sent the signal to this one. The terminal sends its
/// signals to all of its processes, so these signals need not be passed on.
inline bool sent_by_process(const signalfd_siginfo& signal) {
    return signal.ssi_code <= 0;
}

}  // namespace lockstep::os
