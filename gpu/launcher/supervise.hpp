#pragma once

#include <string>
#include <vector>

namespace lockstep::gpu {

/// Starts `ranks` copies of this program (/proc/self/exe) with these arguments, without
/// the program's name, and a placement each, and waits for them. Rank 0 keeps the
/// terminal; the others read nothing, and print nothing but errors. Once a copy ends in
/// error the others get `grace_seconds` to end by themselves, then are killed; so they
/// are if this process is interrupted or asked to end (SIGINT, SIGTERM, SIGHUP, which it
/// passes on), at once if it dies or is interrupted again. No copy outlives it.
///
/// Returns the exit status of the first copy that failed, 0 if none did: 1 for one killed
/// by a signal (141 if rank 0's reader has gone), 128 and the signal if this process got
/// one. Prints nothing, except one line if a copy was killed by a signal.
///
/// To be called from the main thread, before others are started. Throws std::system_error
/// if no copy can be started.
int supervise(int ranks, const std::vector<std::string>& arguments,
              double grace_seconds = 10);

/// Sets what a run on NCCL asks of CUDA and NCCL before their first call in the process,
/// unless the environment says otherwise: with several ranks no lazy loading of kernels,
/// which would wait for those that spin; one order of launches for all communicators; and
/// connections for collectives when a communicator is made, not in the first of them.
void set_environment(int ranks);

}  // namespace lockstep::gpu
