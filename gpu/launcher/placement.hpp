#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep::gpu {

/// Where rank 0 waits for the other processes: "host:port", or "unix:NAME" for a socket
/// of this machine without a file (Linux's abstract namespace).
struct Rendezvous {
    std::string address;
};

/// This process's place among the processes of a run: one a device.
struct Placement {
    int rank = 0;
    int size = 1;
    int local_rank = 0;  ///< among the processes of this machine: which GPU it takes
    int local_size = 1;
    Rendezvous rendezvous;
    std::string launcher;  ///< "lockstep", "mpirun", "srun" or "torchrun"
};

/// Gives an environment variable's value; nothing where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// The place that whoever started this process gave it, in its environment variables:
/// our own launcher, mpirun (Open MPI's, and MPICH's PMI), srun, torchrun. None where
/// nobody did. UsageError names the variable where one is missing or makes no sense, and
/// says what to set where processes on several machines have no address to meet at.
std::optional<Placement> find_placement(const Environment& environment);

}  // namespace lockstep::gpu
