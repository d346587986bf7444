#include "lessons/runner/raw_mode.hpp"

#include <cerrno>
#include <fcntl.h>
#include <poll.h>
#include <system_error>
#include <unistd.h>

#include "src/os/descriptor.hpp"

namespace lockstep::lessons {

namespace {

// The handler only writes the signal's number here, where read() waits for it beside the
// keys.
int signal_pipe = -1;

void note_signal(int number) {
    const int saved = errno;
    const auto byte = static_cast<unsigned char>(number);
    [[maybe_unused]] const ssize_t written = ::write(signal_pipe, &byte, 1);
    errno = saved;
}

/// A byte, or -1 where there is none.
int read_byte(int descriptor) {
    unsigned char byte = 0;
    return os::read_some(descriptor, &byte, 1) == 1 ? byte : -1;
}

}  // namespace

RawMode::RawMode() {
    if (::tcgetattr(STDIN_FILENO, &before_) != 0 ||
        ::pipe2(pipe_.data(), O_CLOEXEC | O_NONBLOCK) != 0)
        throw std::system_error(errno, std::generic_category(),
                                "cannot use the terminal");
    enter();
}

RawMode::~RawMode() {
    leave();
    if (const int signal = read_byte(pipe_[0]); signal > 0) ::raise(signal);
    ::close(pipe_[0]);
    ::close(pipe_[1]);
}

void RawMode::enter() {
    signal_pipe = pipe_[1];
    struct sigaction action {};
    action.sa_handler = note_signal;
    for (std::size_t i = 0; i < kSignals.size(); ++i) {
        ::sigaction(kSignals[i], nullptr, &handlers_before_[i]);
        // What the program was told to ignore (nohup), it goes on to ignore.
        if (handlers_before_[i].sa_handler != SIG_IGN)
            ::sigaction(kSignals[i], &action, nullptr);
    }
    termios raw = before_;
    raw.c_lflag &= ~static_cast<tcflag_t>(ICANON | ECHO);
    raw.c_cc[VMIN] = 1;
    raw.c_cc[VTIME] = 0;
    ::tcsetattr(STDIN_FILENO, TCSAFLUSH, &raw);
}

void RawMode::leave() {
    ::tcsetattr(STDIN_FILENO, TCSADRAIN, &before_);
    for (std::size_t i = 0; i < kSignals.size(); ++i)
        ::sigaction(kSignals[i], &handlers_before_[i], nullptr);
}

std::optional<int> RawMode::read() {
    std::array<pollfd, 2> waits{{{pipe_[0], POLLIN, 0}, {STDIN_FILENO, POLLIN, 0}}};
    while (::poll(waits.data(), waits.size(), -1) < 0) {
        if (errno != EINTR) return -1;
    }
    if (waits[0].revents != 0) return std::nullopt;
    return read_byte(STDIN_FILENO);
}

void RawMode::let_signal_act() {
    leave();
    if (const int signal = read_byte(pipe_[0]); signal > 0) ::raise(signal);
    enter();
}

}  // namespace lockstep::lessons
