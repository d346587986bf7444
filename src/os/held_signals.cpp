#include "src/os/held_signals.hpp"

#include <cerrno>
#include <system_error>
#include <unistd.h>

namespace lockstep::os {

namespace {

bool ignored(int number) {
    struct sigaction action = {};
    sigaction(number, nullptr, &action);
    return action.sa_handler == SIG_IGN;
}

}  // namespace

HeldSignals::HeldSignals() {
    sigset_t held;
    sigemptyset(&held);
    sigaddset(&held, SIGCHLD);
    // A signal that is ignored, as under nohup, stays ignored.
    for (const int number : {SIGINT, SIGTERM, SIGHUP})
        if (!ignored(number)) sigaddset(&held, number);
    descriptor_ = Descriptor(signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK));
    if (!descriptor_.open())
        throw std::system_error(errno, std::generic_category(), "cannot make a signalfd");
    // If SIGCHLD is ignored, children leave no status.
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    sigaction(SIGCHLD, &usual, &child_action_);
    pthread_sigmask(SIG_BLOCK, &held, &mask_before_);
}

HeldSignals::~HeldSignals() {
    pthread_sigmask(SIG_SETMASK, &mask_before_, nullptr);
    sigaction(SIGCHLD, &child_action_, nullptr);
}

std::optional<signalfd_siginfo> HeldSignals::take() const {
    signalfd_siginfo signal = {};
    const ssize_t got = read(descriptor(), &signal, sizeof signal);
    return got == sizeof signal ? std::optional(signal) : std::nullopt;
}

}  // namespace lockstep::os
