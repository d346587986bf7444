#include "lessons/grader/confine/keeper.hpp"

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <cmath>
#include <csignal>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <grp.h>
#include <linux/capability.h>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include "lessons/grader/confine/claimed_user.hpp"

namespace lockstep::lessons {

namespace {

std::size_t threads_if_of(unsigned user, const std::filesystem::path& process) {
    std::ifstream status(process / "status");
    unsigned owner = user;
    std::size_t threads = 0;
    for (std::string line; std::getline(status, line);) {
        if (line.starts_with("Uid:"))
            owner = static_cast<unsigned>(std::stoul(line.substr(4)));
        if (line.starts_with("Threads:")) threads = std::stoul(line.substr(8));
    }
    return owner == user ? threads : 0;
}

/// Returns how many threads a user has on this machine, as far as /proc shows them.
std::size_t count_threads_of(unsigned user) {
    std::size_t count = 0;
    std::error_code error;
    for (std::filesystem::directory_iterator process("/proc", error), end;
         !error && process != end; process.increment(error)) {
        const std::string name = process->path().filename().string();
        if (name.find_first_not_of("0123456789") == std::string::npos)
            count += threads_if_of(user, process->path());
    }
    return count;
}

}  // namespace

std::array<Limit, 8> limits_of(const Confinement& confinement) {
    constexpr rlim_t kStack = 8 << 20;
    constexpr rlim_t kStackOnRequest = 64 << 20;
    const auto units = [](auto value) { return static_cast<rlim_t>(value); };
    const unsigned user = ClaimedUser::works() ? confinement.user : ::geteuid();
    // The system's limit counts all threads of the user.
    rlim_t processes = 0;
    if (confinement.processes > 0)
        processes = units(confinement.processes) + 1 + count_threads_of(user);
    // SIGXCPU announces the end. A program that ignores it gets SIGKILL a second later.
    const rlim_t seconds = units(std::ceil(confinement.cpu_seconds));
    return {{{RLIMIT_CPU, seconds, seconds + 1},
             {RLIMIT_AS, units(confinement.memory_bytes)},
             {RLIMIT_FSIZE, units(confinement.file_bytes)},
             {RLIMIT_NPROC, processes},
             {RLIMIT_NOFILE, units(confinement.files)},
             {RLIMIT_CORE, 0},
             {RLIMIT_MSGQUEUE, 0},
             {RLIMIT_STACK, kStack, kStackOnRequest}}};
}

void close_from(int first) noexcept {
#ifdef SYS_close_range
    if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
    rlimit files = {};
    ::getrlimit(RLIMIT_NOFILE, &files);
    const int end = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 65536));
    for (int descriptor = first; descriptor < end; ++descriptor)
        ::close(descriptor);
}

namespace {

constexpr int kGiven = 3;
constexpr int kFailure = 4;

/// Moves a descriptor above those of the program.
int moved_up(int descriptor) {
    return ::fcntl(descriptor, F_DUPFD_CLOEXEC, kFailure + 1);
}

/// Sets descriptors 0 to 2, 3 if given, and 4 for a failure; exec closes number 4.
bool arrange_descriptors(KeeperPlan& plan) {
    const int failure = moved_up(plan.failure);
    if (failure < 0) return false;
    plan.failure = failure;
    const int nothing = moved_up(plan.nothing);
    const int output = moved_up(plan.output);
    const int given = plan.given < 0 ? -1 : moved_up(plan.given);
    if (nothing < 0 || output < 0 || (given < 0 && plan.given >= 0)) return false;
    if (::dup2(nothing, STDIN_FILENO) < 0 || ::dup2(output, STDOUT_FILENO) < 0 ||
        ::dup2(output, STDERR_FILENO) < 0)
        return false;
    if (given < 0)
        ::close(kGiven);
    else if (::dup2(given, kGiven) < 0)
        return false;
    if (::dup3(failure, kFailure, O_CLOEXEC) < 0) return false;
    plan.failure = kFailure;
    close_from(kFailure + 1);
    return true;
}

/// Becomes the user; the group has the same number.
bool become(unsigned user) {
    return ::setgroups(0, nullptr) == 0 && ::setresgid(user, user, user) == 0 &&
           ::setresuid(user, user, user) == 0;
}

/// Makes root a user like any other: it has no capabilities, and no program gives it any.
bool drop_capabilities() {
    if (::geteuid() != 0) return true;
    constexpr unsigned long kNoRoot = 0b11;  // SECBIT_NOROOT, and no way back
    __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
    const std::array<__user_cap_data_struct, _LINUX_CAPABILITY_U32S_3> none{};
    return ::prctl(PR_SET_SECUREBITS, kNoRoot, 0, 0, 0) == 0 &&
           ::syscall(SYS_capset, &header, none.data()) == 0;
}

bool set_limits(const KeeperPlan& plan) {
    for (const Limit& limit : plan.limits) {
        rlimit now = {};
        if (::getrlimit(static_cast<__rlimit_resource_t>(limit.resource), &now) != 0)
            return false;
        now.rlim_max = std::min(now.rlim_max, std::max(limit.most, limit.reach));
        now.rlim_cur = std::min(now.rlim_max, limit.most);
        if (::setrlimit(static_cast<__rlimit_resource_t>(limit.resource), &now) != 0)
            return false;
    }
    return true;
}

/// Resets all signals except SIGXFSZ, which is ignored: if the program writes too much,
/// write() fails, but the program is not killed.
void reset_signals() {
    struct sigaction usual = {};
    usual.sa_handler = SIG_DFL;
    for (int number = 1; number < NSIG; ++number)
        ::sigaction(number, &usual, nullptr);
    usual.sa_handler = SIG_IGN;
    ::sigaction(SIGXFSZ, &usual, nullptr);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// While this object lives, forked processes are killed first if the machine runs out of
/// memory.
class OfferToBeKilled {
  public:
    OfferToBeKilled() noexcept
        : score_(::open("/proc/self/oom_score_adj", O_RDWR | O_CLOEXEC)),
          length_(::pread(score_, before_.data(), before_.size(), 0)) {
        [[maybe_unused]] const auto written = ::write(score_, "1000", 4);
    }
    ~OfferToBeKilled() {
        if (length_ <= 0) return;
        [[maybe_unused]] const auto written =
            ::pwrite(score_, before_.data(), static_cast<std::size_t>(length_), 0);
    }
    OfferToBeKilled(const OfferToBeKilled&) = delete;
    OfferToBeKilled& operator=(const OfferToBeKilled&) = delete;

  private:
    std::array<char, 16> before_{};
    int score_;
    ssize_t length_;
};

/// Reports a failure, and ends this process.
[[noreturn]] void fail_to_start(const KeeperPlan& plan, StartStep step, int error) {
    const StartFailure failure{step, error};
    [[maybe_unused]] const auto written = ::write(plan.failure, &failure, sizeof failure);
    ::_exit(127);
}

/// Runs in the keeper's child: sets up the plan's descriptors, user, limits and filter,
/// then runs the program. Makes only calls that are allowed between fork and exec.
[[noreturn]] void become_program(const KeeperPlan& given_plan, pid_t keeper) {
    KeeperPlan plan = given_plan;
    ::setsid();
    if (::chdir(plan.folder) != 0) fail_to_start(plan, StartStep::folder, errno);
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    if (!plan.fence->enter()) fail_to_start(plan, StartStep::fence, errno);
    if (!arrange_descriptors(plan)) fail_to_start(plan, StartStep::descriptors, errno);
    // Set the user first: if limits were set before, exec would fail for a user with too
    // many processes.
    if (!(plan.changes_user ? become(plan.user) : drop_capabilities()))
        fail_to_start(plan, StartStep::user, errno);
    if (!set_limits(plan)) fail_to_start(plan, StartStep::limits, errno);
    // This must follow become(), because a change of user clears the setting.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != keeper) ::_exit(127);
    reset_signals();
    if (plan.filter != nullptr && !plan.filter->install())
        fail_to_start(plan, StartStep::filter, errno);
    ::execve(plan.file, plan.arguments, plan.environment);
    fail_to_start(plan, StartStep::program, errno);
}

using os::Clock;

/// How long killed processes may take to end.
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

/// Blocks all signals. ppoll() under the returned mask wakes up at SIGCHLD.
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

/// Kills the children of this process: the program, and the orphans that it left.
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
        // The buffer may have cut the last number, so leave that child to the next call.
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
    /// Collects children that ended. Returns false if there are no children any more.
    bool reap() {
        int status = 0;
        rusage used = {};
        pid_t child = 0;
        while ((child = ::wait4(-1, &status, WNOHANG, &used)) > 0) {
            if (child != program_) continue;
            ended_ = true;
            report_.status = status;
            report_.cpu_seconds = seconds(used.ru_utime) + seconds(used.ru_stime);
            rusage own = {};
            ::getrusage(RUSAGE_SELF, &own);
            if (used.ru_maxrss > own.ru_maxrss)
                report_.peak_bytes = std::int64_t{used.ru_maxrss} * 1024;
        }
        return child == 0 || errno == EINTR;
    }

    /// Waits until `time` or a child's end; returns true once `descriptor` is readable.
    bool wait_until(Clock::time_point time, int descriptor) {
        pollfd watched{descriptor, POLLIN, 0};
        const timespec left = time_until(time);
        return ::ppoll(&watched, 1, &left, &waiting_) > 0;
    }

    /// Kills every process that the program started. Gives up after a while, if the
    /// system does not end them.
    void end_all() {
        const auto deadline = os::after(Clock::now(), kEndSeconds);
        if (!ended_) ::kill(-program_, SIGKILL);
        while (reap() && Clock::now() < deadline) {
            // In a Room the keeper is process 1, so all other processes are the
            // program's.
            if (plan_.room != nullptr)
                ::kill(-1, SIGKILL);
            else
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

/// Closes all of the grader's descriptors except one.
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
    // This process still has the grader's memory, so forbid reading it.
    ::prctl(PR_SET_DUMPABLE, 0);
    ::prctl(PR_SET_CHILD_SUBREAPER, 1);
    const pid_t keeper = ::getpid();
    pid_t program = 0;
    int error = 0;
    {
        const OfferToBeKilled offer;
        if (plan.room != nullptr && !plan.room->enter())
            fail_to_start(plan, StartStep::room, errno);
        program = ::fork();
        if (program == 0) become_program(plan, keeper);
        error = errno;
    }
    if (program < 0) fail_to_start(plan, StartStep::fork, error);
    keep_only(plan.channel);
    const KeeperReport report = Keeper(plan, program, waiting).watch();
    ::send(plan.channel, &report, sizeof report, MSG_NOSIGNAL);
    ::_exit(0);
}

}  // namespace lockstep::lessons
