#pragma once

#include <cstdint>

namespace lockstep::lessons {

/// How much processor time this machine needs now, measured once, in some 50 ms. On
/// virtual machines the first touch of a page can take 50 times as long as elsewhere.
/// Limits of processor time are multiples of it.
struct Pace {
    /// The time of a fixed computation, as a multiple of a usual machine's time; at least
    /// 1.
    double computing = 1;
    double seconds_per_byte = 0;  ///< to touch new memory

    /// Returns a limit that is `seconds` on a usual machine, for a program that may touch
    /// so much memory, twice. Rounded to whole seconds, as the system counts it.
    double limit(double seconds, std::int64_t bytes) const;
};

/// Returns the pace of this machine; the first call measures it.
const Pace& pace();

}  // namespace lockstep::lessons
