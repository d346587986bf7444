#include "sim/worker_pool.hpp"

#include <system_error>
#include <utility>

namespace lockstep::sim {

WorkerPool::WorkerPool(int workers) {
    try {
        for (int i = 0; i < workers; ++i)
            threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
        // As many as the machine lets start: help() does with none.
    }
}

WorkerPool::~WorkerPool() {
    {
        const std::lock_guard lock(mutex_);
        stopping_ = true;
    }
    arrived_.notify_all();
    for (std::thread& thread : threads_)
        thread.join();
}

void WorkerPool::submit(int task, FunctionRef<void()> job) {
    {
        const std::lock_guard lock(mutex_);
        waiting_.push_back({task, job});
    }
    ++outstanding_;
    arrived_.notify_one();
}

std::vector<int> WorkerPool::take_finished() {
    if (outstanding_ == 0) return {};
    const std::lock_guard lock(mutex_);
    outstanding_ -= static_cast<int>(finished_.size());
    return std::exchange(finished_, {});
}

void WorkerPool::help() {
    std::unique_lock lock(mutex_);
    if (waiting_.empty())
        ended_.wait(lock, [this] { return !finished_.empty(); });
    else
        run_first(lock);
}

void WorkerPool::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        arrived_.wait(lock, [this] { return stopping_ || !waiting_.empty(); });
        if (waiting_.empty()) return;
        run_first(lock);
        ended_.notify_one();
    }
}

void WorkerPool::run_first(std::unique_lock<std::mutex>& lock) {
    const Job job = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    job.work();
    lock.lock();
    finished_.push_back(job.task);
}

}  // namespace lockstep::sim
