#include "tests/gpu/emulator/fiber.hpp"

namespace emulated {

namespace {

// Room for a kernel's own arrays (sanitizers need more). Untouched pages use no memory.
constexpr std::size_t kStackBytes = 256 * 1024;

}  // namespace

Fiber::Fiber(std::function<void()> body) : body_(std::move(body)) {
    boost::context::protected_fixedsize_stack allocator(kStackBytes);
    const boost::context::stack_context stack = allocator.allocate();
    stack_ = static_cast<const char*>(stack.sp) - kStackBytes;
#ifdef EMULATED_WITH_TSAN
    inside_thread_ = __tsan_create_fiber(0);
#endif
    inside_ = boost::context::fiber(
        std::allocator_arg, boost::context::preallocated(stack.sp, stack.size, stack),
        allocator, [this](boost::context::fiber&& outside) {
            outside_ = std::move(outside);
            run();
            return std::move(outside_);
        });
}

void Fiber::run() {
    arrive_inside();
    body_();
#ifdef EMULATED_WITH_ASAN
    __sanitizer_start_switch_fiber(nullptr, outside_stack_, outside_bytes_);
#endif
#ifdef EMULATED_WITH_TSAN
    __tsan_switch_to_fiber(outside_thread_, 0);
#endif
}

Fiber::~Fiber() {
#ifdef EMULATED_WITH_TSAN
    __tsan_destroy_fiber(inside_thread_);
#endif
}

void Fiber::arrive_inside() {
#ifdef EMULATED_WITH_ASAN
    __sanitizer_finish_switch_fiber(inside_fake_, &outside_stack_, &outside_bytes_);
#endif
}

void Fiber::resume() {
#ifdef EMULATED_WITH_ASAN
    __sanitizer_start_switch_fiber(&outside_fake_, stack_, kStackBytes);
#endif
#ifdef EMULATED_WITH_TSAN
    outside_thread_ = __tsan_get_current_fiber();
    __tsan_switch_to_fiber(inside_thread_, 0);
#endif
    inside_ = std::move(inside_).resume();
#ifdef EMULATED_WITH_ASAN
    __sanitizer_finish_switch_fiber(outside_fake_, nullptr, nullptr);
#endif
}

void Fiber::pause() {
#ifdef EMULATED_WITH_ASAN
    __sanitizer_start_switch_fiber(&inside_fake_, outside_stack_, outside_bytes_);
#endif
#ifdef EMULATED_WITH_TSAN
    __tsan_switch_to_fiber(outside_thread_, 0);
#endif
    outside_ = std::move(outside_).resume();
    arrive_inside();
}

}  // namespace emulated
