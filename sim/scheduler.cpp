#include "sim/scheduler.hpp"

#include <exception>
#include <thread>
#include <utility>

namespace lockstep::sim {

namespace {

/// The scheduler's thread works, too, so W workers need W - 1 more threads.
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
    calls_.assign(static_cast<std::size_t>(tasks), {});
    OpenCall* const outside = open_call;
    running_ = tasks;
    const auto whole = [&](int task) {
        open_call = &calls_[task];  // a thread of its own has this for good
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
    open_call = outside;
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
        open_call = &calls_[current_];
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
            open_call = &calls_[task];
            contexts_->resume(task);
        }
    }
    current_ = -1;
    cancelled_ = false;
    ready_.clear();
    next_ = 0;
}

void Scheduler::unwind() {
    // A destructor that waits while its task is unwound must not throw.
    if (std::uncaught_exceptions() == 0) throw Cancelled{};
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

}  // namespace lockstep::sim
