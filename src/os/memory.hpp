#pragma once

#include <cstdint>

namespace lockstep::os {

/// Returns how many more bytes this process can allocate before the system runs out of
/// memory and kills a process: memory that is free or can be freed at once, within the
/// limits of its control groups. Returns the largest number if the system does not say.
/// Takes about 50 us.
std::int64_t available_memory();

/// Returns how many processes the system has killed so far because it ran out of memory,
/// on the whole machine or in a control group; 0 if it does not count them.
std::int64_t killed_for_memory();

}  // namespace lockstep::os
