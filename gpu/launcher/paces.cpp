#include "gpu/launcher/paces.hpp"

#include <algorithm>

namespace lockstep::gpu {

Paces::Paces(int size, const StallWatch& watch)
    : interval_(watch.interval()),
      timeout_(watch.timeout()),
      paces_(static_cast<size_t>(size), Pace::unwatched) {}

void Paces::note(int rank, Pace pace, Clock::time_point now) {
    paces_[static_cast<size_t>(rank)] = pace;
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
