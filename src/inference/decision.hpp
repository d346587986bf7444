#pragma once

#include <cstdint>

#include "src/comm/communicator.hpp"
#include "src/device/device.hpp"

namespace lockstep {

// Ranks that work on the same passes must make the same decisions, but their clocks do
// not agree exactly. So rank 0 decides, and tells the other ranks.

/// Returns the `own` of rank 0 of the group: a broadcast of 4 bytes. If only shapes are
/// computed, a broadcast brings no number, and each rank gets its own number back.
std::int32_t told_by_first(Device& device, Communicator& group, std::int32_t own,
                           SourceLine at = SourceLine::here());

/// Returns what rank 0 of the group decides: a broadcast of 4 bytes. If only shapes are
/// computed, a split follows, which takes no time; the place of rank 0 in the split tells
/// the other ranks what rank 0 has decided.
bool decided_by_first(Device& device, Communicator& group, bool own,
                      SourceLine at = SourceLine::here());

}  // namespace lockstep
