#include <memory>
#include <semaphore>
#include <thread>

#include "sim/scheduler.hpp"

namespace lockstep::sim {

namespace {

/// A thread a context. Who holds the baton runs: the scheduler hands it to a context's
/// thread and waits until it comes back. Slower than fibers by three orders of magnitude,
/// and just what debuggers and sanitizers understand.
class ThreadContexts final : public Contexts {
  public:
    void create(int count, FunctionRef<void(int)> body) override {
        for (int i = 0; i < count; ++i) {
            contexts_.push_back(std::make_unique<Context>());
            Context& context = *contexts_.back();
            context.thread = std::thread([this, i, body, &context] {
                context.baton.acquire();
                body(i);
                scheduler_.release();
            });
        }
    }

    void resume(int i) override {
        contexts_[static_cast<std::size_t>(i)]->baton.release();
        scheduler_.acquire();
    }

    void suspend(int i) override {
        scheduler_.release();
        contexts_[static_cast<std::size_t>(i)]->baton.acquire();
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

    std::vector<std::unique_ptr<Context>> contexts_;
    std::binary_semaphore scheduler_{0};
};

}  // namespace

std::unique_ptr<Contexts> make_thread_contexts() {
    return std::make_unique<ThreadContexts>();
}

}  // namespace lockstep::sim
