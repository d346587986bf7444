#include "sim/worker_pool.hpp"

#include <algorithm>
#include <system_error>
#include <utility>

#include "sim/in_parts.hpp"

namespace lockstep::sim {

WorkerPool::WorkerPool(int workers) {
    try {
        for (int i = 0; i < workers; ++i)
            threads_.emplace_back([this] { work(); });
    } catch (const std::system_error&) {
        // The pool works with fewer threads, or with none: help() computes, too.
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
    if (!waiting_.empty()) return run_first(lock);
    ++idle_;
    ended_.wait(lock, [this] { return !finished_.empty() || !shared_.empty(); });
    --idle_;
    if (finished_.empty()) take_parts_of_first(lock);
}

void WorkerPool::work() {
    std::unique_lock lock(mutex_);
    while (true) {
        ++idle_;
        arrived_.wait(
            lock, [this] { return stopping_ || !waiting_.empty() || !shared_.empty(); });
        --idle_;
        if (!waiting_.empty()) {
            run_first(lock);
            ended_.notify_one();
        } else if (!shared_.empty()) {
            take_parts_of_first(lock);
        } else {
            return;
        }
    }
}

namespace {

thread_local WorkerPool* pool_of_job = nullptr;

}  // namespace

WorkerPool* WorkerPool::of_job() {
    return pool_of_job;
}

void WorkerPool::run_first(std::unique_lock<std::mutex>& lock) {
    const Job job = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    pool_of_job = this;
    job.work();
    pool_of_job = nullptr;
    lock.lock();
    finished_.push_back(job.task);
}

int WorkerPool::idle() {
    const std::lock_guard lock(mutex_);
    return waiting_.empty() ? idle_ : 0;
}

void WorkerPool::share(std::int64_t count, FunctionRef<void(std::int64_t)> part) {
    Shared shared{part, count};
    {
        const std::lock_guard lock(mutex_);
        shared_.push_back(&shared);
    }
    arrived_.notify_all();
    ended_.notify_one();
    pool_of_job = nullptr;
    take_parts(shared);
    pool_of_job = this;
    std::unique_lock lock(mutex_);
    std::erase(shared_, &shared);
    helped_.wait(lock, [&] { return shared.helpers == 0; });
    if (shared.failure) std::rethrow_exception(shared.failure);
}

void WorkerPool::take_parts_of_first(std::unique_lock<std::mutex>& lock) {
    Shared& shared = *shared_.front();
    ++shared.helpers;
    lock.unlock();
    take_parts(shared);
    lock.lock();
    std::erase(shared_, &shared);
    if (--shared.helpers == 0) helped_.notify_all();
}

void WorkerPool::take_parts(Shared& shared) {
    for (std::int64_t i = shared.next++; i < shared.count; i = shared.next++) {
        try {
            shared.part(i);
        } catch (...) {
            const std::lock_guard lock(mutex_);
            shared.failure = std::current_exception();
        }
    }
}

void in_parts(std::int64_t n, std::int64_t unit,
              FunctionRef<void(std::int64_t first, std::int64_t count)> work) {
    WorkerPool* const pool = WorkerPool::of_job();
    const std::int64_t threads = pool == nullptr || n < 2 * unit ? 1 : 1 + pool->idle();
    if (threads == 1) return work(0, n);
    constexpr std::int64_t kPartsEach = 2;  // a late thread delays only a small part
    const std::int64_t units = (n + unit - 1) / unit;
    const std::int64_t parts = std::min(units, kPartsEach * threads);
    const std::int64_t longest = (units + parts - 1) / parts * unit;
    pool->share((n + longest - 1) / longest, [&](std::int64_t i) {
        work(i * longest, std::min(longest, n - i * longest));
    });
}

}  // namespace lockstep::sim
