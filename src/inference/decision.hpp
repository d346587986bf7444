#pragma once

#include <cstdint>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

// Ranks that work on the same passes have to decide alike, but no two clocks are alike:
// rank 0 decides, and tells the others.

/// Returns the number that rank 0 of the group has: a broadcast of 4 bytes. Without
/// numbers a broadcast brings none, and each rank gets its own.
std::int32_t told_by_first(Device& device, Communicator& group, std::int32_t own,
                           SourceLine at = SourceLine::here());

/// Returns what rank 0 of the group decides: a broadcast of 4 bytes. It works without
/// numbers, too: then a split follows, which takes no time, and the place that rank 0
/// asks for in it says what it has decided.
bool decided_by_first(Device& device, Communicator& group, bool own,
                      SourceLine at = SourceLine::here());

}  // namespace lockstep
