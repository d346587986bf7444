#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "sim/cluster.hpp"
#include "sim/worker_pool.hpp"
#include "src/core/call_scope.hpp"
#include "src/core/function_ref.hpp"

namespace lockstep::sim {

/// Is thrown inside a task to end it when the run is over. It is not a std::exception, so
/// a program's own handlers let it pass. A destructor that waits must be noexcept(false);
/// otherwise the process ends if a run fails during that wait.
struct Cancelled {};

/// A stack for each task, and switches between tasks and the scheduler.
class Contexts {
  public:
    virtual ~Contexts() = default;
    /// Makes `count` contexts; context i runs body(i) when it is first resumed.
    virtual void create(int count, FunctionRef<void(int)> body) = 0;
    /// From the scheduler: runs context i until it suspends or its body returns.
    virtual void resume(int i) = 0;
    /// Context i will be resumed soon: data that it needs first may be prefetched.
    virtual void soon(int /*i*/) {}
    /// From context i: back to the scheduler.
    virtual void suspend(int i) = 0;
    /// Is called after all bodies have returned.
    virtual void join() = 0;
};

std::unique_ptr<Contexts> make_fiber_contexts();
std::unique_ptr<Contexts> make_thread_contexts();

/// Runs tasks one at a time, each on a stack of its own, until none can run.
///
/// Rules: one task (or the scheduler) runs at any moment, so nothing that tasks share
/// needs a lock. Long arithmetic goes to `offload`: the task waits, and other tasks run.
/// When no task can run and nothing is offloaded, the run is quiet: `on_quiet` advances
/// virtual time and makes tasks ready. If no task becomes ready, the run is over, and the
/// tasks that have not ended are cancelled.
class Scheduler {
  public:
    Scheduler(ExecutorKind kind, int workers, std::optional<std::uint64_t> seed);

    /// `body(i)` must let Cancelled pass. `on_quiet` returns false if nothing more can
    /// happen; it is called once more after the last task has ended.
    void run(int tasks, FunctionRef<void(int)> body, FunctionRef<bool()> on_quiet);

    /// Returns the task that runs; -1 for the scheduler itself.
    int current() const { return current_; }
    /// From a task: waits until make_ready(task). Throws Cancelled once the run is over,
    /// but returns if another exception is already unwinding the stack. It is inline,
    /// because a processor mispredicts where a function returns to after a switch.
    void suspend() {
        if (!cancelled_) contexts_->suspend(current_);
        if (cancelled_) unwind();
    }
    void make_ready(int task) { ready_.push_back(task); }
    /// From a task: runs `job` on a worker, if there is one.
    void offload(FunctionRef<void()> job);

  private:
    /// Throws Cancelled, unless another exception is already unwinding the stack.
    static void unwind();

    int take_ready();
    void run_until_quiet();
    void cancel_rest(int tasks);

    std::unique_ptr<Contexts> contexts_;
    WorkerPool pool_;
    std::optional<std::uint64_t> random_;
    std::vector<int> ready_;
    std::size_t next_ = 0;  ///< the first task in ready_ that has not been taken
    std::vector<char> ended_;
    std::vector<OpenCall> calls_;  ///< by task
    int running_ = 0;              ///< tasks that have not ended
    int current_ = -1;
    bool cancelled_ = false;
};

}  // namespace lockstep::sim
