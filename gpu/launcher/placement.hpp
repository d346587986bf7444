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
    Rendezvous rendezvous;    ///< empty where the process is alone
    std::string launcher;     ///< "lockstep", "mpirun", "srun" or "torchrun"
    bool supervised = false;  ///< by supervise(), which says so where a process is lost
};

/// Gives an environment variable's value; nothing where it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// The place that whoever started this process gave it, in its environment variables:
/// our own launcher, torchrun, mpirun (Open MPI's, and MPICH's PMI), srun. None where
/// nobody did, and in a shell that Slurm gave (sbatch, salloc, `srun --pty`). UsageError
/// names the variable where one is missing or makes no sense. An empty one is not set.
///
/// They meet at LOCKSTEP_RENDEZVOUS where that is set, or beside NCCL_COMM_ID's port;
/// otherwise, where all are on one machine, at a socket of that machine; otherwise at
/// rank 0's address as torchrun or srun tell it. mpirun tells none: UsageError says what
/// to set.
std::optional<Placement> find_placement(const Environment& environment);

}  // namespace lockstep::gpu
