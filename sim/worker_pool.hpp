#pragma once

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <vector>

#include "src/core/function_ref.hpp"

namespace lockstep::sim {

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
    /// Runs a waiting job on this thread, or waits until one ends.
    void help();

  private:
    struct Job {
        int task;
        FunctionRef<void()> work;
    };

    void work();
    /// Runs the job that waits longest, without the lock.
    void run_first(std::unique_lock<std::mutex>& lock);

    std::mutex mutex_;
    std::condition_variable arrived_;
    std::condition_variable ended_;
    std::deque<Job> waiting_;
    std::vector<int> finished_;
    int outstanding_ = 0;  ///< submitted and not taken; the scheduler's alone
    bool stopping_ = false;
    std::vector<std::thread> threads_;
};

}  // namespace lockstep::sim
