#pragma once

#include <string>
#include <vector>

namespace lockstep::gpu {

/// Starts `ranks` copies of this program (/proc/self/exe) with these arguments and a
/// placement each, and waits for them. Rank 0 keeps the terminal; the others read
/// nothing. Once a copy ends in error the others get `grace_seconds` to end by
/// themselves, then are killed; so they are where this process dies or is interrupted. No
/// copy outlives it.
///
/// Returns the exit status of the first copy that failed, 0 where none did. Prints
/// nothing, except one line where a copy was killed by a signal.
int supervise(int ranks, const std::vector<std::string>& arguments,
              double grace_seconds = 10);

}  // namespace lockstep::gpu
