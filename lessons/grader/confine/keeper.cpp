#include "lessons/grader/confine/keeper.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <csignal>
#include <fcntl.h>
#include <optional>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lessons/grader/confine/become_program.hpp"

namespace lockstep::lessons {

namespace {

using os::Clock;

/// How long processes that were killed may take to go.
constexpr double kEndSeconds = 2;

double seconds(const timeval& time) {
    return static_cast<double>(time.tv_sec) + 1e-6 * static_cast<double>(time.tv_usec);
}

timespec time_until(Clock::time_point deadline) {
    const auto left = std::max(deadline - Clock::now(), Clock::duration::zero());
    const auto whole = std::chrono::floor<std::chrono::seconds>(left);
    return {static_cast<time_t>(whole.count()),
            static_cast<long>(std::chrono::nanoseconds(left - whole).count())};
}

/// All signals wait, but SIGCHLD wakes ppoll() under the mask that this returns.
sigset_t hold_signals() {
    struct sigaction wakes = {};
    wakes.sa_handler = [](int) {};
    ::sigaction(SIGCHLD, &wakes, nullptr);
    sigset_t all;
    sigfillset(&all);
    ::sigprocmask(SIG_SETMASK, &all, nullptr);
    sigdelset(&all, SIGCHLD);
    return all;
}

/// Kills the children of this process: the program, and orphans that it left.
void kill_children() {
    std::array<char, 4096> text;
    const int file = ::open("/proc/thread-self/children", O_RDONLY | O_CLOEXEC);
    const ssize_t got = file < 0 ? 0 : ::read(file, text.data(), text.size());
    ::close(file);
    const char* at = text.data();
    const char* const end = at + std::max<ssize_t>(got, 0);
    while (at < end) {
        pid_t child = 0;
        const auto [rest, error] = std::from_chars(at, end, child);
        // A number that the buffer's end may have cut is read the next time.
        if (error == std::errc() && rest < end) ::kill(child, SIGKILL);
        at = rest + 1;
    }
}

class Keeper {
  public:
    Keeper(const KeeperPlan& plan, pid_t program, const sigset_t& waiting)
        : plan_(plan), program_(program), waiting_(waiting) {}

    KeeperReport watch() {
        while (!ended_) {
            if (!reap() || ended_) break;
            report_.over_wall = Clock::now() >= plan_.deadline;
            if (report_.over_wall || report_.requested) break;
            report_.requested = wait_until(plan_.deadline, plan_.channel);
        }
        end_all();
        return report_;
    }

  private:
    /// Takes children that ended. False where there are none left, alive or not.
    bool reap() {
        int status = 0;
        rusage used = {};
        pid_t child = 0;
        while ((child = ::wait4(-1, &status, WNOHANG, &used)) > 0) {
            if (child != program_) continue;
            ended_ = true;
            report_.status = status;
            report_.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
        }
        return child == 0 || errno == EINTR;
    }

    /// Until a child ends, the time comes, or there is something (true) on a descriptor.
    bool wait_until(Clock::time_point time, int descriptor) {
        pollfd watched{descriptor, POLLIN, 0};
        const timespec left = time_until(time);
        return ::ppoll(&watched, 1, &left, &waiting_) > 0;
    }

    /// No process that came of the program is left after this; unless the system cannot
    /// end one in time.
    void end_all() {
        const auto deadline = os::after(Clock::now(), kEndSeconds);
        if (!ended_) ::kill(-program_, SIGKILL);
        while (reap() && Clock::now() < deadline) {
            kill_children();
            if (!ended_) ::kill(program_, SIGKILL);
            wait_until(std::min(deadline, os::after(Clock::now(), 0.005)), -1);
        }
    }

    const KeeperPlan& plan_;
    pid_t program_;
    sigset_t waiting_;
    KeeperReport report_;
    bool ended_ = false;
};

/// Of all descriptors of the grader the keeper has one.
void keep_only(int& descriptor) {
    if (descriptor != 0) ::dup2(descriptor, 0);
    descriptor = 0;
    close_from(1);
}

}  // namespace

void keep(const KeeperPlan& given_plan) {
    KeeperPlan plan = given_plan;
    const sigset_t waiting = hold_signals();
    ::setsid();
    // This process still has the grader's memory: nobody may read it.
    ::prctl(PR_SET_DUMPABLE, 0);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t keeper = ::getpid();
    const pid_t program = ::fork();
    if (program < 0) fail_to_start(plan, StartStep::fork, errno);
    if (program == 0) become_program(plan, keeper);
    keep_only(plan.channel);
    const KeeperReport report = Keeper(plan, program, waiting).watch();
    ::send(plan.channel, &report, sizeof report, MSG_NOSIGNAL);
    ::_exit(0);
}

}  // namespace lockstep::lessons
