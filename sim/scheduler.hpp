#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "sim/cluster.hpp"
#include "src/core/function_ref.hpp"

namespace lockstep::sim {

/// Ends a task from within when the run is over for it. Not a std::exception, so that a
/// program's own handlers let it pass. A destructor that waits is noexcept(false), or the
/// process ends if a run fails while it waits.
struct Cancelled {};

/// A stack of its own for each task, and switches between them and the scheduler.
class Contexts {
  public:
    virtual ~Contexts() = default;
    /// Makes `count` contexts; context i runs body(i) when it is first resumed.
    virtual void create(int count, FunctionRef<void(int)> body) = 0;
    /// From the scheduler: runs context i until it suspends or its body returns.
    virtual void resume(int i) = 0;
    /// Context i will be resumed soon: what it needs first may be fetched.
    virtual void soon(int /*i*/) {}
    /// From context i: back to the scheduler.
    virtual void suspend(int i) = 0;
    /// The bodies have all returned.
    virtual void join() = 0;
};

std::unique_ptr<Contexts> make_fiber_contexts();
std::unique_ptr<Contexts> make_thread_contexts();

/// Threads that run long arithmetic while the tasks that asked for it wait.
class WorkerPool {
  public:
    explicit WorkerPool(int workers);
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    int workers() const { return static_cast<int>(threads_.size()); }
    /// `job` must not throw, and must live until its task is among the finished.
    void submit(int task, FunctionRef<void()> job);
    /// Tasks whose jobs have ended since the last call.
    std::vector<int> take_finished();
    /// Returns whether a job is waiting, running, or ended and not yet taken.
    bool busy() const { return outstanding_ > 0; }
    /// Runs a waiting job on this thread, or waits until one ends; meanwhile it takes
    /// parts of those that run.
    void help();

    /// Returns how many threads wait for work.
    int idle();
    /// From a job: calls part(i) for each i < count, here and on threads that wait for
    /// work. Throws what a part throws, once all have ended.
    void share(std::int64_t count, FunctionRef<void(std::int64_t)> part);
    /// Returns the pool whose job runs on this thread; null if there is none, or if it is
    /// a part of one.
    static WorkerPool* of_job();

  private:
    struct Job {
        int task;
        FunctionRef<void()> work;
    };
    struct Shared {
        FunctionRef<void(std::int64_t)> part;
        std::int64_t count;
        std::atomic<std::int64_t> next{0};
        int helpers = 0;  ///< threads that take parts, beside the job's own
        std::exception_ptr failure{};
    };

    void work();
    /// Runs the job that waits longest, without the lock.
    void run_first(std::unique_lock<std::mutex>& lock);
    /// Takes parts of a job, without the lock.
    void take_parts_of_first(std::unique_lock<std::mutex>& lock);
    void take_parts(Shared& shared);

    std::mutex mutex_;
    std::condition_variable arrived_;
    std::condition_variable ended_;
    std::condition_variable helped_;
    std::deque<Job> waiting_;
    std::deque<Shared*> shared_;  ///< jobs that may have parts left
    int idle_ = 0;
    std::vector<int> finished_;
    int outstanding_ = 0;  ///< submitted and not taken; the scheduler's alone
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

/// Runs tasks one at a time, each on a stack of its own, until none can run.
///
/// Rules: one task (or the scheduler) runs at any moment, so nothing that tasks share
/// needs a lock. Long arithmetic goes to `offload`: the task waits, others run. When no
/// task can run and nothing is offloaded, the run is quiet: `on_quiet` moves the virtual
/// world on and makes tasks ready. If it cannot, the run is over, and tasks that have not
/// ended are cancelled.
class Scheduler {
  public:
    Scheduler(ExecutorKind kind, int workers, std::optional<std::uint64_t> seed);

    /// `body(i)` must let Cancelled pass. `on_quiet` returns false if nothing more can
    /// happen; it is asked once more after the last task has ended.
    void run(int tasks, FunctionRef<void(int)> body, FunctionRef<bool()> on_quiet);

    /// The task that runs, -1 for the scheduler itself.
    int current() const { return current_; }
    /// From a task: waits until make_ready(task). Throws Cancelled once the run is over;
    /// if an exception is already on its way, it returns.
    void suspend();
    void make_ready(int task) { ready_.push_back(task); }
    /// From a task: runs `job` on a worker, if there is one.
    void offload(FunctionRef<void()> job);

  private:
    int take_ready();
    void run_until_quiet();
    void cancel_rest(int tasks);

    std::unique_ptr<Contexts> contexts_;
    WorkerPool pool_;
    std::optional<std::uint64_t> random_;
    std::vector<int> ready_;
    std::size_t next_ = 0;  ///< ready_ before it has been taken
    std::vector<char> ended_;
    int running_ = 0;  ///< tasks that have not ended
    int current_ = -1;
    bool cancelled_ = false;
};

}  // namespace lockstep::sim
