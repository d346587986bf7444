#pragma once

#include <algorithm>
#include <chrono>

namespace lockstep::os {

using Clock = std::chrono::steady_clock;
constexpr auto kNever = Clock::time_point::max();

inline Clock::duration duration_of(double seconds) {
    return std::chrono::duration_cast<Clock::duration>(
        std::chrono::duration<double>(seconds));
}

/// Returns the time that is `seconds` after `start`.
inline Clock::time_point after(Clock::time_point start, double seconds) {
    return start + duration_of(seconds);
}

/// Returns the number of milliseconds that poll() must wait until a time: rounded up, at
/// least 0 and at most some days. If the time is kNever, returns -1, with which poll()
/// waits without a limit.
inline int milliseconds_until(Clock::time_point time) {
    if (time == kNever) return -1;
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(time - Clock::now());
    return static_cast<int>(std::clamp<long long>(left.count(), 0, 1 << 30));
}

}  // namespace lockstep::os
