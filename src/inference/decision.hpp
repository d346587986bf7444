#pragma once

#include <cstdint>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

// Ranks that work on the same passes must decide the same, but no two clocks agree
// exactly. So rank 0 decides, and tells the others.

/// Returns the number that rank 0 of the group passes: a broadcast of 4 bytes. In a run
/// without numbers a broadcast brings no number, and each rank gets its own.
std::int32_t told_by_first(Device& device, Communicator& group, std::int32_t own,
                           SourceLine at = SourceLine::here());

/// Returns what rank 0 of the group decides: a broadcast of 4 bytes. It also works in a
/// run without numbers. Then a split follows, which takes no time; rank 0's place in the
/// split tells the other ranks what rank 0 has decided.
bool decided_by_first(Device& device, Communicator& group, bool own,
                      SourceLine at = SourceLine::here());

}  // namespace lockstep
