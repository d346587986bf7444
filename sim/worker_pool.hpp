#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

#include "src/core/function_ref.hpp"

namespace lockstep::sim {

/// Threads that run long arithmetic while the task that needs the result waits.
class WorkerPool {
  public:
    explicit WorkerPool(int workers);
    ~WorkerPool();
    WorkerPool(const WorkerPool&) = delete;
    WorkerPool& operator=(const WorkerPool&) = delete;

    int workers() const { return static_cast<int>(threads_.size()); }
    /// `job` must not throw, and must live until take_finished() returns its task.
    void submit(int task, FunctionRef<void()> job);
    /// Returns the tasks whose jobs have ended since the last call.
    std::vector<int> take_finished();
    /// Returns whether a job is waiting, running, or ended and not yet taken.
    bool busy() const { return outstanding_ > 0; }
    /// Runs a waiting job on this thread. If no job is waiting, waits until a job has
    /// ended, or until a job shares its parts, and then computes some of these parts.
    void help();

    /// Returns how many threads wait for work.
    int idle();
    /// Called in a job: calls part(i) for each i < count, on this thread and on threads
    /// that wait for work. If a part throws, rethrows after all parts have ended.
    void share(std::int64_t count, FunctionRef<void(std::int64_t)> part);
    /// Returns the pool whose job runs on this thread; null if the thread runs no job, or
    /// is inside a part that share() gives out.
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
        int helpers = 0;  ///< other threads that compute parts of the job
        std::exception_ptr failure{};
    };

    void work();
    /// Runs the job that has waited longest; releases the lock while it runs.
    void run_first(std::unique_lock<std::mutex>& lock);
    /// Computes parts of a job; releases the lock meanwhile.
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
    int outstanding_ = 0;  ///< submitted and not taken; only the scheduler uses it
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace lockstep::sim
