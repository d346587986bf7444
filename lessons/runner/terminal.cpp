#include "lessons/runner/terminal.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <system_error>
#include <termios.h>
#include <unistd.h>

#include <fmt/format.h>

#include "src/text/wrap.hpp"

namespace lockstep::lessons {

void print(std::string_view text) {
    write_all(STDOUT_FILENO, text, "standard output");
}

namespace {

using Clock = std::chrono::steady_clock;
using namespace std::chrono_literals;

class SilentProgress : public Progress {
  public:
    void advance(std::int64_t) override {}
};

class LineProgress : public Progress {
  public:
    LineProgress(std::string what, std::int64_t total)
        : what_(std::move(what)), total_(total) {}
    ~LineProgress() override { erase(); }
    LineProgress(const LineProgress&) = delete;
    LineProgress& operator=(const LineProgress&) = delete;

    void advance(std::int64_t done) override {
        const Clock::time_point now = Clock::now();
        if (now < next_) return;
        next_ = now + 100ms;
        const double share =
            total_ > 0 ? static_cast<double>(done) / static_cast<double>(total_) : 0;
        const std::string line =
            fmt::format("{}  {:.0f} %", what_, 100 * std::clamp(share, 0., 1.));
        // Leave one column free, because after a full line the terminal begins a new
        // line.
        const int room = window_columns(STDERR_FILENO) - 1;
        const std::string fits = line.substr(0, bytes_in_columns(line, room));
        write("\r" + pad_right(fits, shown_));
        shown_ = columns_of(fits);
    }

  private:
    void erase() const {
        if (shown_ > 0) write("\r" + pad_right("", shown_) + "\r");
    }

    /// If the terminal is closed, the program continues.
    static void write(const std::string& text) {
        [[maybe_unused]] const ssize_t written =
            ::write(STDERR_FILENO, text.data(), text.size());
    }

    std::string what_;
    std::int64_t total_;
    int shown_ = 0;
    Clock::time_point next_ = Clock::now() + 1s;
};

}  // namespace

std::unique_ptr<Progress> show_progress(const std::string& what, std::int64_t total) {
    if (!is_clever_terminal(STDERR_FILENO)) return std::make_unique<SilentProgress>();
    return std::make_unique<LineProgress>(what, total);
}

std::function<void(int done)> advancing(const std::string& what, std::int64_t total) {
    return [progress = std::shared_ptr<Progress>(show_progress(what, total))](int done) {
        progress->advance(done);
    };
}

namespace {

// The handler only writes the signal's number here. read() polls this pipe and the keys.
int signal_pipe = -1;

void note_signal(int number) {
    const int saved = errno;
    const auto byte = static_cast<unsigned char>(number);
    [[maybe_unused]] const ssize_t written = ::write(signal_pipe, &byte, 1);
    errno = saved;
}

/// Returns a byte, or -1 if there is none.
int read_byte(int descriptor) {
    unsigned char byte = 0;
    return os::read_some(descriptor, &byte, 1) == 1 ? byte : -1;
}

/// While this object lives, standard input delivers single keys without showing them.
/// Signals that would end or suspend the program are kept until let_signal_act(). Only
/// one object may exist at a time.
class RawMode {
  public:
    RawMode();
    /// Restores the terminal, and lets a pending signal act.
    ~RawMode();
    RawMode(const RawMode&) = delete;
    RawMode& operator=(const RawMode&) = delete;

    /// Returns the next byte from the terminal; -1 at its end; none if a signal came
    /// first.
    std::optional<int> read();

    /// Returns true if the window has a new size. Otherwise restores the terminal and
    /// lets the pending signal act; returns false if the program then continues.
    bool let_signal_act();

  private:
    static constexpr std::array<int, 6> kSignals{SIGINT,  SIGTERM, SIGHUP,
                                                 SIGQUIT, SIGTSTP, SIGWINCH};

    void enter();
    void leave();

    termios before_{};
    std::array<struct sigaction, kSignals.size()> handlers_before_{};
    std::array<int, 2> pipe_{};
};

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
        // If a signal is ignored (nohup), it stays ignored.
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

bool RawMode::let_signal_act() {
    const int signal = read_byte(pipe_[0]);
    if (signal == SIGWINCH) return true;
    leave();
    if (signal > 0) ::raise(signal);
    enter();
    return false;
}

}  // namespace

std::optional<Key> key_called(char key) {
    constexpr char kControlD = 4;
    switch (key) {
        case '\n':
        case '\r':
        case ' ':
            return Key::next;
        case 'b':
        case 'B':
            return Key::back;
        case 'n':
        case 'N':
            return Key::step;
        case 's':
        case 'S':
            return Key::all;
        case '?':
        case 'h':
            return Key::help;
        case 'q':
        case 'Q':
        case kControlD:
            return Key::quit;
        default:
            return std::nullopt;
    }
}

Key wait_for_key(std::string_view prompt) {
    constexpr int kEndOfInput = -1;
    RawMode raw;
    const std::string gone = "\r" + pad_right("", columns_of(prompt)) + "\r";
    print(prompt);
    while (true) {
        const std::optional<int> byte = raw.read();
        if (!byte) {
            print(gone);
            if (raw.let_signal_act()) return Key::resized;
            print(prompt);
            continue;
        }
        const std::optional<Key> key = *byte == kEndOfInput
                                           ? std::optional(Key::quit)
                                           : key_called(static_cast<char>(*byte));
        if (!key) continue;
        print(gone);
        return *key;
    }
}

std::optional<std::string> ask_line(const std::string& prompt) {
    print(prompt);
    std::string line;
    char c = 0;
    while (::read(STDIN_FILENO, &c, 1) == 1) {
        if (c == '\n') return line;
        line += c;
    }
    print("\n");
    return std::nullopt;
}

}  // namespace lockstep::lessons
