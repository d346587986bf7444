#pragma once

#include <optional>
#include <signal.h>
#include <sys/signalfd.h>

#include "gpu/launcher/descriptor.hpp"

namespace lockstep::gpu {

/// While one lives, the signals that concern who waits for other programs (SIGINT,
/// SIGTERM, SIGHUP, where they are not ignored, and SIGCHLD) wait to be taken. To be made
/// on the main thread, before others are started.
class HeldSignals {
  public:
    /// Throws std::system_error.
    HeldSignals();
    ~HeldSignals();
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;

    /// What programs that are started meanwhile should have.
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

/// Whether another process sent the signal to this one. The terminal's own reach all its
/// processes: nobody need pass them on.
inline bool sent_by_process(const signalfd_siginfo& signal) {
    return signal.ssi_code <= 0;
}

}  // namespace lockstep::gpu
