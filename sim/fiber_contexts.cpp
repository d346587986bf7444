#include <boost/context/fiber.hpp>
#include <boost/context/fixedsize_stack.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <cxxabi.h>

#include "sim/scheduler.hpp"

namespace lockstep::sim {

namespace {

// Eigen's products used 202 KB of stack before its large temporaries were moved to the
// heap.
constexpr std::size_t kStackBytes = 256 * 1024;

// A stack with a guard page is two mappings, of which Linux gives a process 65,530.
constexpr int kMostGuarded = 24'000;

/// What the C++ runtime keeps for each thread about exceptions being handled. Fibers
/// share a thread, so each must carry its own across a switch (Itanium C++ ABI,
/// section 2.2.2).
struct ExceptionState {
    void* caught = nullptr;
    unsigned int uncaught = 0;
};

ExceptionState& exception_state() {
    return *reinterpret_cast<ExceptionState*>(abi::__cxa_get_globals());
}

class FiberContexts final : public Contexts {
  public:
    void create(int count, FunctionRef<void(int)> body) override {
        fibers_.resize(static_cast<std::size_t>(count));
        const boost::context::protected_fixedsize_stack guarded(kStackBytes);
        const boost::context::fixedsize_stack bare(kStackBytes);
        for (int i = 0; i < count; ++i)
            fibers_[static_cast<std::size_t>(i)] =
                count <= kMostGuarded ? make(guarded, i, body) : make(bare, i, body);
    }

    void resume(int i) override {
        // A run may be started from within a handler.
        const ExceptionState mine = exception_state();
        exception_state() = {};
        boost::context::fiber& fiber = fibers_[static_cast<std::size_t>(i)];
        fiber = std::move(fiber).resume();
        exception_state() = mine;
    }

    void suspend(int) override {
        const ExceptionState mine = exception_state();
        exception_state() = {};
        scheduler_ = std::move(scheduler_).resume();
        exception_state() = mine;
    }

    void join() override { fibers_.clear(); }

  private:
    template <typename Stack>
    boost::context::fiber make(Stack stack, int i, FunctionRef<void(int)> body) {
        return boost::context::fiber(std::allocator_arg, std::move(stack),
                                     [this, i, body](boost::context::fiber&& scheduler) {
                                         scheduler_ = std::move(scheduler);
                                         body(i);
                                         return std::move(scheduler_);
                                     });
    }

    std::vector<boost::context::fiber> fibers_;
    boost::context::fiber scheduler_;
};

}  // namespace

std::unique_ptr<Contexts> make_fiber_contexts() {
    return std::make_unique<FiberContexts>();
}

}  // namespace lockstep::sim
