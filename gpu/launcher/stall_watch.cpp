#include "gpu/launcher/stall_watch.hpp"

#include <algorithm>

namespace lockstep::gpu {

using namespace std::chrono_literals;

StallWatch::StallWatch(double timeout_seconds)
    : timeout_(std::chrono::duration_cast<Clock::duration>(
          std::chrono::duration<double>(timeout_seconds))),
      interval_(std::clamp<Clock::duration>(timeout_ / 8, 5ms, 1s)) {}

void StallWatch::begin() noexcept {
    progress();
    watching_ = true;
}

StallWatch::Pause::~Pause() {
    watch_.progress();
    --watch_.pauses_;
}

bool StallWatch::stalled(Clock::time_point now) {
    const Clock::duration looked = std::min(now - last_look_, 2 * interval_);
    last_look_ = now;
    const uint64_t steps = steps_.load(std::memory_order_relaxed);
    const bool still = watching_ && pauses_ == 0 && steps == last_steps_;
    last_steps_ = steps;
    const Clock::duration before = still_;
    still_ = still ? still_ + looked : Clock::duration{};
    return before < timeout_ && still_ >= timeout_;
}

}  // namespace lockstep::gpu
