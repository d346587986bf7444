#include "gpu/launcher/pace.hpp"

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

Paces::Paces(int size, const StallWatch& watch)
    : interval_(watch.interval()),
      timeout_(watch.timeout()),
      paces_(static_cast<size_t>(size), Pace::unwatched) {}

void Paces::note(int rank, Pace pace, Clock::time_point now) {
    paces_[rank] = pace;
    const auto place = std::find(still_.begin(), still_.end(), rank);
    const bool stands = pace == Pace::still || pace == Pace::stuck;
    if (stands && place == still_.end()) still_.push_back(rank);
    if (!stands && place != still_.end()) still_.erase(place);
    if (!all_still())
        due_ = kNever;
    else
        due_ = std::min(due_, now + (pace == Pace::unwatched ? timeout_ : interval_));
}

std::optional<int> Paces::standstill(Clock::time_point now) const {
    return now >= due_ ? std::optional(still_.front()) : std::nullopt;
}

bool Paces::all_still() const {
    const auto any = [&](Pace pace) {
        return std::find(paces_.begin(), paces_.end(), pace) != paces_.end();
    };
    return any(Pace::stuck) || (!any(Pace::moving) && !still_.empty());
}

}  // namespace lockstep::gpu
