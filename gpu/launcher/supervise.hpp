#pragma once

#include <string>
#include <vector>

namespace lockstep::gpu {

/// Starts `ranks` copies of this program (/proc/self/exe), each with its placement and
/// the run's secret, and waits for them. `arguments` are without the program's name. Rank
/// 0 keeps the terminal; the other copies read nothing, and print only errors. Once a
/// copy ends in error, the other copies have `grace_seconds` to end, and are then killed.
/// The same happens if this process gets SIGINT, SIGTERM or SIGHUP; it passes the signal
/// on. If it gets a second signal, or dies, the copies are killed at once. No copy
/// outlives this process.
///
/// Returns the exit status of the first copy that failed; 0 if none did. The status is 1
/// for a copy killed by a signal, 141 if rank 0's reader has gone, and 128 plus the
/// signal if this process got one. Prints nothing, except one line if a signal killed a
/// copy.
///
/// Call it from the main thread, before other threads start. Throws std::system_error if
/// no copy can be started.
int supervise(int ranks, const std::vector<std::string>& arguments,
              double grace_seconds = 10);

/// Sets the environment variables of CUDA and NCCL that a run on NCCL needs, unless they
/// are set. Call it before the first call of CUDA or NCCL in the process. With several
/// ranks, kernels are not loaded lazily, because loading would wait for kernels that
/// spin. All communicators share one order of launches. Connections for collectives are
/// made with the communicator, not in the first collective.
void set_environment(int ranks);

}  // namespace lockstep::gpu
