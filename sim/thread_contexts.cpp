#include <memory>
#include <semaphore>
#include <system_error>
#include <thread>

#include <fmt/format.h>

#include "sim/scheduler.hpp"
#include "src/core/require.hpp"

namespace lockstep::sim {

namespace {

/// One thread per context. Only the thread that has the baton runs: the scheduler passes
/// the baton to a context's thread and waits until it is passed back. Threads are about a
/// thousand times slower than fibers, but debuggers and sanitizers understand them.
class ThreadContexts final : public Contexts {
  public:
    void create(int count, FunctionRef<void(int)> body) override {
        try {
            for (int i = 0; i < count; ++i)
                add(i, body);
        } catch (const std::system_error&) {
            const std::size_t made = contexts_.size() - 1;
            give_up();
            throw UsageError(
                fmt::format("{} ranks need as many threads, but this machine allows only "
                            "{}; fibers need no threads",
                            count, made));
        }
    }

    void resume(int i) override {
        contexts_[i]->baton.release();
        scheduler_.acquire();
    }

    void suspend(int i) override {
        scheduler_.release();
        contexts_[i]->baton.acquire();
    }

    void join() override {
        for (auto& context : contexts_)
            context->thread.join();
        contexts_.clear();
    }

  private:
    struct Context {
        std::binary_semaphore baton{0};
        std::thread thread;
    };

    void add(int i, FunctionRef<void(int)> body) {
        contexts_.push_back(std::make_unique<Context>());
        Context& context = *contexts_.back();
        context.thread = std::thread([this, i, body, &context] {
            context.baton.acquire();
            if (given_up_) return;
            body(i);
            scheduler_.release();
        });
    }

    /// Ends the threads that were made. No body has run yet.
    void give_up() {
        given_up_ = true;
        contexts_.pop_back();  // the context without a thread
        for (auto& context : contexts_)
            context->baton.release();
        join();
    }

    bool given_up_ = false;
    std::vector<std::unique_ptr<Context>> contexts_;
    std::binary_semaphore scheduler_{0};
};

}  // namespace

std::unique_ptr<Contexts> make_thread_contexts() {
    return std::make_unique<ThreadContexts>();
}

}  // namespace lockstep::sim
