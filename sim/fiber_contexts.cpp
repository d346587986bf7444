#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cstddef>
#include <cxxabi.h>
#include <utility>

#include "sim/scheduler.hpp"

namespace lockstep::sim {

namespace {

// Large enough for a program's own arrays. Only touched pages take memory. A stack with
// its guard page is two mappings; Linux gives a process 65,530.
constexpr std::size_t kStackBytes = 1 << 20;

/// State of the C++ runtime about exceptions that are being handled, one per thread.
/// Fibers share a thread, so each fiber must save its own state at a switch (Itanium C++
/// ABI, section 2.2.2).
struct ExceptionState {
    void* caught = nullptr;
    unsigned int uncaught = 0;
};

class FiberContexts final : public Contexts {
  public:
    void create(int count, FunctionRef<void(int)> body) override {
        exceptions_ = reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
        fibers_.resize(static_cast<std::size_t>(count));
        frames_.assign(static_cast<std::size_t>(count), nullptr);
        for (int i = 0; i < count; ++i)
            fibers_[i] = make(i, body);
    }

    void resume(int i) override {
        // A run may be started from within a handler.
        const ExceptionState mine = std::exchange(*exceptions_, {});
        boost::context::fiber& fiber = fibers_[i];
        fiber = std::move(fiber).resume();
        *exceptions_ = mine;
    }

    void soon(int i) override {
        constexpr std::ptrdiff_t kLine = 64;
        const auto* const frame = static_cast<const char*>(frames_[i]);
        if (frame == nullptr) return;
        for (std::ptrdiff_t line = -3; line < 6; ++line)
            __builtin_prefetch(frame + line * kLine);
    }

    void suspend(int i) override {
        frames_[i] = __builtin_frame_address(0);
        const ExceptionState mine = std::exchange(*exceptions_, {});
        scheduler_ = std::move(scheduler_).resume();
        *exceptions_ = mine;
    }

    void join() override { fibers_.clear(); }

  private:
    boost::context::fiber make(int i, FunctionRef<void(int)> body) {
        return boost::context::fiber(
            std::allocator_arg, boost::context::protected_fixedsize_stack(kStackBytes),
            [this, i, body](boost::context::fiber&& scheduler) {
                scheduler_ = std::move(scheduler);
                body(i);
                return std::move(scheduler_);
            });
    }

    ExceptionState* exceptions_ = nullptr;  ///< of the one thread that runs all fibers
    std::vector<boost::context::fiber> fibers_;
    std::vector<const void*> frames_;  ///< where each fiber was last suspended
    boost::context::fiber scheduler_;
};

}  // namespace

std::unique_ptr<Contexts> make_fiber_contexts() {
    return std::make_unique<FiberContexts>();
}

}  // namespace lockstep::sim
