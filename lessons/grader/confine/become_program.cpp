#include "lessons/grader/confine/become_program.hpp"

#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <grp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace lockstep::lessons {

namespace {

constexpr int kGiven = 3;
constexpr int kFailure = 4;

/// Above the descriptors that the program has.
int moved_up(int descriptor) {
    return ::fcntl(descriptor, F_DUPFD_CLOEXEC, kFailure + 1);
}

/// 0 to 2, 3 where one is given, and 4 for a failure, which exec closes.
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

bool drop_user() {
    return ::setgroups(0, nullptr) == 0 && ::setresgid(kNobody, kNobody, kNobody) == 0 &&
           ::setresuid(kNobody, kNobody, kNobody) == 0;
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

/// Signals as any program finds them, except that writing too much is an error of
/// write(), not a death.
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

/// Where memory runs out on the machine, this program goes first.
void offer_to_be_killed() {
    const int score = ::open("/proc/self/oom_score_adj", O_WRONLY | O_CLOEXEC);
    [[maybe_unused]] const auto written = ::write(score, "1000", 4);
    ::close(score);
}

}  // namespace

void close_from(int first) {
#ifdef SYS_close_range
    if (::syscall(SYS_close_range, first, ~0U, 0) == 0) return;
#endif
    rlimit files = {};
    ::getrlimit(RLIMIT_NOFILE, &files);
    const int end = static_cast<int>(std::min<rlim_t>(files.rlim_cur, 65536));
    for (int descriptor = first; descriptor < end; ++descriptor)
        ::close(descriptor);
}

void fail_to_start(const KeeperPlan& plan, StartStep step, int error) {
    const StartFailure failure{step, error};
    [[maybe_unused]] const auto written = ::write(plan.failure, &failure, sizeof failure);
    ::_exit(127);
}

void become_program(const KeeperPlan& given_plan, pid_t keeper) {
    KeeperPlan plan = given_plan;
    ::setsid();
    if (::chdir(plan.folder) != 0) fail_to_start(plan, StartStep::folder, errno);
    offer_to_be_killed();
    ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0);
    plan.fence->enter();
    if (!arrange_descriptors(plan)) fail_to_start(plan, StartStep::descriptors, errno);
    // The user first: exec fails for a user that has too many processes when it is set.
    if (plan.drops_user && !drop_user()) fail_to_start(plan, StartStep::user, errno);
    if (!set_limits(plan)) fail_to_start(plan, StartStep::limits, errno);
    // A change of user clears this.
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != keeper) ::_exit(127);
    reset_signals();
    if (plan.filter != nullptr) plan.filter->install();
    ::execve(plan.file, plan.arguments, plan.environment);
    fail_to_start(plan, StartStep::program, errno);
}

}  // namespace lockstep::lessons
