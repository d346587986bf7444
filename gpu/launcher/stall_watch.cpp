#include "gpu/launcher/stall_watch.hpp"

#include <algorithm>
#include <utility>

namespace lockstep::gpu {

using namespace std::chrono_literals;

StallWatch::StallWatch(double timeout_seconds)
    : timeout_(os::duration_of(timeout_seconds)),
      interval_(std::clamp<Clock::duration>(timeout_ / 8, 5ms, 1s)) {}

void StallWatch::begin() noexcept {
    progress();
    watching_ = true;
}

StallWatch::Pause::~Pause() {
    watch_.progress();
    --watch_.pauses_;
}

std::optional<Pace> StallWatch::look(Clock::time_point now) {
    const Clock::duration looked = std::min(now - last_look_, 2 * interval_);
    last_look_ = now;
    const uint64_t steps = steps_.load(std::memory_order_relaxed);
    const bool watched = watching_ && pauses_ == 0;
    still_ = watched && steps == last_steps_ ? still_ + looked : Clock::duration{};
    last_steps_ = steps;
    const Pace pace = watched ? pace_now() : Pace::unwatched;
    if (std::exchange(last_pace_, pace) == pace) return std::nullopt;
    return pace;
}

Pace StallWatch::pace_now() const {
    if (still_ < timeout_) return Pace::moving;
    return still_ < 10 * timeout_ ? Pace::still : Pace::stuck;
}

}  // namespace lockstep::gpu
