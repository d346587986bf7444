#pragma once

#include <string>
#include <vector>

namespace lockstep::gpu {

/// Starts `ranks` copies of this program (/proc/self/exe) with these arguments, without
/// the program's name, and a placement each, and waits for them. Rank 0 keeps the
/// terminal; the others read nothing, and print nothing but errors. Once a copy ends in
/// error the others get `grace_seconds` to end by themselves, then are killed; so they
/// are where this process is interrupted or asked to end (SIGINT, SIGTERM, SIGHUP, which
/// it passes on), at once where it dies or is interrupted again. No copy outlives it.
///
/// Returns the exit status of the first copy that failed, 0 where none did: 1 for one
/// killed by a signal (141 where rank 0's reader has gone), 128 and the signal where this
/// process got one. Prints nothing, except one line where a copy was killed by a signal.
///
/// To be called from the main thread, before others are started. Throws std::system_error
/// where no copy can be started.
int supervise(int ranks, const std::vector<std::string>& arguments,
              double grace_seconds = 10);

}  // namespace lockstep::gpu
