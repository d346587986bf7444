#include "lessons/runner/child.hpp"

#include <array>
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <poll.h>
#include <spawn.h>
#include <sys/signalfd.h>
#include <sys/wait.h>
#include <system_error>
#include <unistd.h>
#include <utility>

extern char** environ;

namespace lockstep::lessons {

namespace {

using Clock = std::chrono::steady_clock;

void require_success(int error, const std::string& what) {
    if (error != 0) throw std::system_error(error, std::generic_category(), what);
}

class Descriptor {
  public:
    explicit Descriptor(int number) : number_(number) {
        if (number < 0)
            throw std::system_error(errno, std::generic_category(),
                                    "cannot run a program");
    }
    ~Descriptor() { close(); }
    Descriptor(Descriptor&& other) noexcept : number_(std::exchange(other.number_, -1)) {}
    Descriptor& operator=(Descriptor&&) = delete;

    int get() const { return number_; }
    void close() {
        if (number_ >= 0) ::close(std::exchange(number_, -1));
    }

  private:
    int number_;
};

struct Pipe {
    Descriptor reading;
    Descriptor writing;
};

Pipe make_pipe() {
    std::array<int, 2> ends{-1, -1};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) ends = {-1, -1};
    return {Descriptor(ends[0]), Descriptor(ends[1])};
}

/// While it lives, the signals that ask a program to end wait in a file descriptor.
class HeldSignals {
  public:
    HeldSignals() : descriptor_(hold()) {}
    ~HeldSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
    HeldSignals(const HeldSignals&) = delete;
    HeldSignals& operator=(const HeldSignals&) = delete;

    int descriptor() const { return descriptor_.get(); }
    const sigset_t& before() const { return before_; }
    int take() const {
        signalfd_siginfo signal{};
        const ssize_t got = ::read(descriptor_.get(), &signal, sizeof signal);
        return got == sizeof signal ? static_cast<int>(signal.ssi_signo) : 0;
    }

  private:
    int hold() {
        sigset_t held;
        ::sigemptyset(&held);
        for (const int signal : {SIGINT, SIGTERM, SIGHUP})
            ::sigaddset(&held, signal);
        ::pthread_sigmask(SIG_BLOCK, &held, &before_);
        return ::signalfd(-1, &held, SFD_CLOEXEC | SFD_NONBLOCK);
    }

    sigset_t before_{};
    Descriptor descriptor_;
};

pid_t spawn(const std::vector<std::string>& words, const Pipe& output, const Pipe& errors,
            const HeldSignals& signals) {
    std::vector<char*> arguments;
    for (const std::string& word : words)
        arguments.push_back(const_cast<char*>(word.c_str()));
    arguments.push_back(nullptr);

    posix_spawn_file_actions_t files;
    ::posix_spawn_file_actions_init(&files);
    ::posix_spawn_file_actions_addopen(&files, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
    ::posix_spawn_file_actions_adddup2(&files, output.writing.get(), STDOUT_FILENO);
    ::posix_spawn_file_actions_adddup2(&files, errors.writing.get(), STDERR_FILENO);
    posix_spawnattr_t attributes;
    ::posix_spawnattr_init(&attributes);
    ::posix_spawnattr_setsigmask(&attributes, &signals.before());
    ::posix_spawnattr_setflags(&attributes, POSIX_SPAWN_SETSIGMASK);
    pid_t process = 0;
    const int error = ::posix_spawnp(&process, words.front().c_str(), &files, &attributes,
                                     arguments.data(), environ);
    ::posix_spawnattr_destroy(&attributes);
    ::posix_spawn_file_actions_destroy(&files);
    require_success(error, words.front());
    return process;
}

/// Takes what is there; closes the pipe at its end.
void take(Descriptor& from, std::string& text) {
    std::array<char, 65536> buffer;
    const ssize_t got = ::read(from.get(), buffer.data(), buffer.size());
    if (got > 0)
        text.append(buffer.data(), static_cast<std::size_t>(got));
    else if (got == 0 || errno != EINTR)
        from.close();
}

int milliseconds_until(std::optional<Clock::time_point> deadline) {
    if (!deadline) return -1;
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(*deadline - Clock::now());
    return left.count() > 0 ? static_cast<int>(left.count()) : 0;
}

int wait_for(pid_t process) {
    int status = 0;
    while (::waitpid(process, &status, 0) < 0 && errno == EINTR) {
    }
    return WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
}

}  // namespace

Child run_child(const std::vector<std::string>& words,
                std::optional<double> timeout_seconds) {
    const HeldSignals signals;
    Pipe output = make_pipe();
    Pipe errors = make_pipe();
    const pid_t process = spawn(words, output, errors, signals);
    output.writing.close();
    errors.writing.close();

    std::optional<Clock::time_point> deadline;
    if (timeout_seconds)
        deadline = Clock::now() + std::chrono::duration_cast<Clock::duration>(
                                      std::chrono::duration<double>(*timeout_seconds));
    Child child;
    while (output.reading.get() >= 0 || errors.reading.get() >= 0) {
        std::array<pollfd, 3> watched{{{output.reading.get(), POLLIN, 0},
                                       {errors.reading.get(), POLLIN, 0},
                                       {signals.descriptor(), POLLIN, 0}}};
        const int ready =
            ::poll(watched.data(), watched.size(), milliseconds_until(deadline));
        if (ready == 0) {
            ::kill(process, SIGKILL);
            break;
        }
        if (ready < 0) continue;
        if (watched[0].revents != 0) take(output.reading, child.output);
        if (watched[1].revents != 0) take(errors.reading, child.errors);
        if (watched[2].revents == 0) continue;
        if (const int signal = signals.take()) {
            child.interrupted_by = signal;
            ::kill(process, signal);
        }
    }
    child.status = wait_for(process);
    return child;
}

std::string find_on_path(const std::string& name) {
    const char* folders = std::getenv("PATH");
    std::string rest = folders == nullptr ? "" : folders;
    while (!rest.empty()) {
        const std::size_t end = std::min(rest.find(':'), rest.size());
        const std::string file = rest.substr(0, end) + "/" + name;
        if (end > 0 && ::access(file.c_str(), X_OK) == 0) return file;
        rest.erase(0, end + 1);
    }
    return "";
}

}  // namespace lockstep::lessons
