#pragma once

#include <boost/context/fiber.hpp>
#include <boost/context/protected_fixedsize_stack.hpp>
#include <functional>

#include "tests/gpu/emulator/sanitizers.hpp"

namespace emulated {

/// A function that has its own stack and can pause in the middle. It runs on the OS
/// thread that first resumed it. It must have returned when the fiber is destroyed.
class Fiber {
  public:
    explicit Fiber(std::function<void()> body);
    ~Fiber();
    Fiber(const Fiber&) = delete;
    Fiber& operator=(const Fiber&) = delete;

    /// Continues the function until it pauses.
    void resume();
    /// Called by the function. Then resume() returns.
    void pause();

  private:
    void run();
    void arrive_inside();

    std::function<void()> body_;
    boost::context::fiber inside_, outside_;
    [[maybe_unused]] const void* outside_stack_ =
        nullptr;  ///< for AddressSanitizer, like the next four members
    [[maybe_unused]] std::size_t outside_bytes_ = 0;
    [[maybe_unused]] void* inside_fake_ = nullptr;
    [[maybe_unused]] void* outside_fake_ = nullptr;
    [[maybe_unused]] const void* stack_ = nullptr;
    [[maybe_unused]] void* inside_thread_ =
        nullptr;  ///< for ThreadSanitizer, like the next member
    [[maybe_unused]] void* outside_thread_ = nullptr;
};

}  // namespace emulated
