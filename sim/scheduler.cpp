#include "sim/scheduler.hpp"

#include <algorithm>
#include <exception>
#include <system_error>
#include <utility>

#include "sim/in_parts.hpp"

namespace lockstep::sim {

namespace {

/// The scheduler's thread helps its workers, so that W workers need W - 1 threads more.
int extra_threads(int workers) {
    if (workers == 0) workers = static_cast<int>(std::thread::hardware_concurrency());
    return workers > 1 ? workers - 1 : 0;
}

/// Steele, Lea & Flood's splitmix64: a well-mixed sequence from any seed.
std::uint64_t next_random(std::uint64_t& state) {
    std::uint64_t z = state += 0x9E3779B97F4A7C15;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB;
    return z ^ (z >> 31);
}

}  // namespace

Scheduler::Scheduler(ExecutorKind kind, int workers, std::optional<std::uint64_t> seed)
    : contexts_(kind == ExecutorKind::fibers ? make_fiber_contexts()
                                             : make_thread_contexts()),
      pool_(extra_threads(workers)),
      random_(seed) {}

void Scheduler::run(int tasks, FunctionRef<void(int)> body,
                    FunctionRef<bool()> on_quiet) {
    ended_.assign(static_cast<std::size_t>(tasks), 0);
    running_ = tasks;
    const auto whole = [&](int task) {
        try {
            if (!cancelled_) body(task);
        } catch (const Cancelled&) {  // that is how a cancelled task ends
        }
        ended_[task] = 1;
        --running_;
    };
    contexts_->create(tasks, whole);
    ready_.reserve(static_cast<std::size_t>(tasks) * 2);
    for (int task = 0; task < tasks; ++task)
        make_ready(task);

    do
        run_until_quiet();
    while (on_quiet());
    cancel_rest(tasks);
    contexts_->join();
}

void Scheduler::run_until_quiet() {
    while (true) {
        for (const int task : pool_.take_finished())
            make_ready(task);
        if (next_ == ready_.size()) {
            ready_.clear();
            next_ = 0;
            if (!pool_.busy()) return;
            pool_.help();
            continue;
        }
        constexpr std::size_t kAhead = 3;
        if (next_ + kAhead < ready_.size()) contexts_->soon(ready_[next_ + kAhead]);
        current_ = take_ready();
        contexts_->resume(current_);
        current_ = -1;
    }
}

int Scheduler::take_ready() {
    if (random_) {
        const std::size_t choice =
            next_ + next_random(*random_) % (ready_.size() - next_);
        std::swap(ready_[next_], ready_[choice]);
    }
    return ready_[next_++];
}

void Scheduler::cancel_rest(int tasks) {
    cancelled_ = true;
    for (int task = 0; task < tasks; ++task) {
        while (!ended_[task]) {
            current_ = task;
            contexts_->resume(task);
        }
    }
    current_ = -1;
    cancelled_ = false;
    ready_.clear();
    next_ = 0;
}

void Scheduler::suspend() {
    if (!cancelled_) contexts_->suspend(current_);
    // A destructor that waits while its task is unwound must not throw.
    if (cancelled_ && std::uncaught_exceptions() == 0) throw Cancelled{};
}

void Scheduler::offload(FunctionRef<void()> job) {
    if (pool_.workers() == 0 || cancelled_) {
        job();
        return;
    }
    std::exception_ptr failure;
    const auto guarded = [&] {
        try {
            job();
        } catch (...) {
            failure = std::current_exception();
        }
    };
    pool_.submit(current_, guarded);
    contexts_->suspend(current_);
    if (failure) std::rethrow_exception(failure);
}

// The workers.

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
    constexpr std::int64_t kPartsEach = 2;  // one that is late is waited for less
    const std::int64_t units = (n + unit - 1) / unit;
    const std::int64_t parts = std::min(units, kPartsEach * threads);
    const std::int64_t longest = (units + parts - 1) / parts * unit;
    pool->share((n + longest - 1) / longest, [&](std::int64_t i) {
        work(i * longest, std::min(longest, n - i * longest));
    });
}

}  // namespace lockstep::sim
