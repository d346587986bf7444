#include "gpu/launcher/supervise.hpp"

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <poll.h>
#include <random>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>
#include <utility>

#include <fmt/format.h>

#include "gpu/launcher/secret.hpp"
#include "src/core/require.hpp"
#include "src/os/child.hpp"
#include "src/os/deadline.hpp"
#include "src/os/environment.hpp"
#include "src/os/held_signals.hpp"

namespace lockstep::gpu {

namespace {

using os::Clock;

/// The copies that run, and the state of the run as a whole.
class Supervisor {
  public:
    explicit Supervisor(double grace_seconds) : grace_(os::duration_of(grace_seconds)) {}
    ~Supervisor() {
        kill_all(SIGKILL);
        for (const pid_t process : running_)
            if (process > 0) os::wait_for(process);
    }
    Supervisor(const Supervisor&) = delete;
    Supervisor& operator=(const Supervisor&) = delete;

    void start(int ranks, const std::vector<std::string>& arguments);
    int wait();

  private:
    void collect();
    void note_end(int rank, int wait_status);
    void interrupt(const signalfd_siginfo& signal);
    void fail(int status) {
        status_ = status;
        end_soon();
    }
    void end_soon();
    void kill_all(int signal);
    void say_death(int rank, int signal);
    bool any_running() const {
        return std::any_of(running_.begin(), running_.end(),
                           [](pid_t p) { return p > 0; });
    }

    os::HeldSignals signals_;
    Clock::duration grace_;
    std::vector<pid_t> running_;   // by rank; 0 once it has ended
    std::vector<bool> signalled_;  // by rank; whether this process has sent it a signal
    int status_ = 0;
    bool interrupted_ = false;
    bool said_ = false;
    bool ending_ = false;  // a copy has failed, or a signal has arrived
    std::optional<Clock::time_point> patience_end_;
};

void Supervisor::start(int ranks, const std::vector<std::string>& arguments) {
    os::CopyPlan plan;
    plan.arguments = {program_invocation_name};
    plan.arguments.insert(plan.arguments.end(), arguments.begin(), arguments.end());
    plan.signal_mask = signals_.mask_before();
    std::random_device random;
    const std::string meeting =
        fmt::format("unix:lockstep-{}-{:08x}{:08x}", getpid(), random(), random());
    const std::string secret = fresh_secret();
    const std::string size = std::to_string(ranks);
    for (int rank = 0; rank < ranks; ++rank) {
        plan.keeps_terminal = rank == 0;
        plan.variables = {{"LOCKSTEP_RANK", std::to_string(rank)},
                          {"LOCKSTEP_SIZE", size},
                          {"LOCKSTEP_LOCAL_RANK", std::to_string(rank)},
                          {"LOCKSTEP_LOCAL_SIZE", size},
                          {"LOCKSTEP_RENDEZVOUS", meeting},
                          {"LOCKSTEP_SECRET", secret},
                          {"LOCKSTEP_SUPERVISED", "1"}};
        running_.push_back(os::start_copy(plan));
        signalled_.push_back(false);
    }
}

int Supervisor::wait() {
    while (any_running()) {
        pollfd waits = {signals_.descriptor(), POLLIN, 0};
        poll(&waits, 1, os::milliseconds_until(patience_end_.value_or(os::kNever)));
        while (const std::optional<signalfd_siginfo> signal = signals_.take())
            if (signal->ssi_signo != SIGCHLD) interrupt(*signal);
        collect();
        if (patience_end_ && Clock::now() >= *patience_end_) {
            kill_all(SIGKILL);
            patience_end_.reset();
        }
    }
    return status_;
}

void Supervisor::collect() {
    for (size_t rank = 0; rank < running_.size(); ++rank) {
        int wait_status = 0;
        if (running_[rank] == 0 || waitpid(running_[rank], &wait_status, WNOHANG) <= 0)
            continue;
        running_[rank] = 0;
        note_end(static_cast<int>(rank), wait_status);
    }
}

void Supervisor::note_end(int rank, int wait_status) {
    const bool killed = WIFSIGNALED(wait_status);
    if (!killed) {
        if (!ending_ && WEXITSTATUS(wait_status) != 0) fail(WEXITSTATUS(wait_status));
        return;
    }
    const int signal = WTERMSIG(wait_status);
    // A reader that closes rank 0's output is no mistake.
    const bool unread = rank == 0 && signal == SIGPIPE;
    // Another copy's failure, caused by this death, may have been seen first.
    if (!unread) say_death(rank, signal);
    if (!ending_) fail(unread ? 128 + SIGPIPE : 1);
}

void Supervisor::say_death(int rank, int signal) {
    if (interrupted_ || signalled_[rank]) return;
    if (std::exchange(said_, true)) return;
    const char* name = sigabbrev_np(signal);
    fmt::print(stderr, "lockstep: rank {} was killed by signal {} (SIG{})\n", rank,
               signal, name ? name : "?");
}

void Supervisor::interrupt(const signalfd_siginfo& signal) {
    const int number = static_cast<int>(signal.ssi_signo);
    if (os::sent_by_process(signal)) kill_all(number);
    if (interrupted_) return kill_all(SIGKILL);
    interrupted_ = true;
    if (status_ == 0) status_ = 128 + number;
    end_soon();
}

void Supervisor::end_soon() {
    if (!ending_) patience_end_ = Clock::now() + grace_;
    ending_ = true;
}

void Supervisor::kill_all(int signal) {
    for (size_t rank = 0; rank < running_.size(); ++rank) {
        if (running_[rank] == 0) continue;
        signalled_[rank] = true;
        kill(running_[rank], signal);
    }
}

}  // namespace

int supervise(int ranks, const std::vector<std::string>& arguments,
              double grace_seconds) {
    // A copy that did not find its placement would start copies too, without end.
    require(!os::variable("LOCKSTEP_SUPERVISED"),
            "LOCKSTEP_SUPERVISED is set: this process was started as part of a run and "
            "cannot start processes itself; unset it to start a run here");
    Supervisor supervisor(grace_seconds);
    supervisor.start(ranks, arguments);
    return supervisor.wait();
}

void set_environment(int ranks) {
    constexpr int kKeep = 0;  // keep what the environment says
    if (ranks > 1) ::setenv("CUDA_MODULE_LOADING", "EAGER", kKeep);
    ::setenv("NCCL_LAUNCH_ORDER_IMPLICIT", "1", kKeep);
    ::setenv("NCCL_RUNTIME_CONNECT", "0", kKeep);
}

}  // namespace lockstep::gpu
