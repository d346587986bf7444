#pragma once

#include <cstdint>

namespace lockstep::os {

/// Returns how many bytes more this process can have before the system is short of memory
/// and ends a process: what is free or can be freed at once, within the limits of its
/// control groups. The largest number if the system does not say. It takes some 50 us.
std::int64_t available_memory();

/// Returns how many processes the system has killed so far since memory was short, on the
/// whole machine or in a control group; 0 if it does not count them.
std::int64_t killed_for_memory();

}  // namespace lockstep::os
