#include "gpu/launcher/heartbeat.hpp"

#include <algorithm>

#include <fmt/format.h>

namespace lockstep::gpu {

namespace {

using namespace std::chrono_literals;

constexpr Clock::duration kLeastPatience = 3s;  // a description may take 2 of them

}  // namespace

Heartbeat::Heartbeat(double timeout_seconds)
    : timeout_(os::duration_of(timeout_seconds)),
      interval_(std::clamp<Clock::duration>(timeout_ / 8, 50ms, 1s)) {}

bool Heartbeat::strikes(Clock::time_point now) {
    if (now < due_) return false;
    due_ = now + interval_;
    return true;
}

int Heartbeat::beats_in(Clock::duration time) const {
    return static_cast<int>((time + interval_ - Clock::duration(1)) / interval_);
}

int Heartbeat::patience() const {
    return beats_in(std::max(timeout_, kLeastPatience));
}

int Silence::beat(Connection& line) {
    if (line.flushed()) line.send(Message(MessageKind::beat));
    beats_ = line.heard() ? 0 : beats_ + 1;
    return beats_;
}

std::string silence_text(int rank) {
    return fmt::format(
        "lockstep: rank {} does not answer: its process is stopped or its "
        "machine cannot be reached",
        rank);
}

}  // namespace lockstep::gpu
