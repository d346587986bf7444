#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep::gpu {

/// The address at which rank 0 waits for the other processes: "host:port", or
/// "unix:NAME" for a socket of this machine without a file (Linux's abstract namespace).
struct Rendezvous {
    std::string address;
};

/// A place to meet, taken apart.
struct Address {
    std::string unix_name;  ///< of "unix:NAME"; empty for a host and port
    std::string host;  ///< a name, an IPv4 address, or an IPv6 address without brackets
    int port = 0;

    /// As it was written: "unix:NAME", "host:port" or "[::1]:port".
    std::string text() const;
};

/// Reads "unix:NAME", "host:port" or "[ipv6]:port". UsageError says what is wrong with
/// the address and begins with `variable`, its source.
Address parse_address(const std::string& text, const std::string& variable);

/// This process's place among the processes of a run: one a device.
struct Placement {
    int rank = 0;
    int size = 1;
    int local_rank = 0;  ///< among the processes of this machine: which GPU it takes
    int local_size = 1;
    Rendezvous rendezvous;    ///< empty if the process is alone
    std::string launcher;     ///< "lockstep", "mpirun", "srun" or "torchrun"
    bool supervised = false;  ///< by supervise(), which says so if a process is lost
};

/// Gives an environment variable's value; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// The place that whoever started this process gave it, in its environment variables:
/// our own launcher, torchrun, mpirun (Open MPI's, and MPICH's PMI), srun. None if nobody
/// did, and in a shell that Slurm gave (sbatch, salloc, `srun --pty`). UsageError names
/// the variable if one is missing or makes no sense. An empty one is not set.
///
/// They meet at LOCKSTEP_RENDEZVOUS if that is set, or beside NCCL_COMM_ID's port;
/// otherwise, if all are on one machine, at a socket of that machine; otherwise at
/// rank 0's address as torchrun or srun tell it. mpirun tells none: UsageError says what
/// to set.
std::optional<Placement> find_placement(const Environment& environment);

/// The first machine of a list as Slurm writes it: "gpu01" of "gpu[01-04,07],login1".
/// UsageError, beginning with `variable`, if the text is no such list.
std::string first_host(const std::string& list, const std::string& variable);

/// How many tasks run on machine number `node` (from 0) by a list of counts as Slurm
/// writes it: of "4(x2),3" that is 4, 4 and 3. UsageError as above, and if the list has
/// no such machine.
int tasks_of_node(const std::string& list, int node, const std::string& variable);

/// A number that depends on all of the text, and is the same on every machine.
unsigned long long hash_text(const std::string& text);

}  // namespace lockstep::gpu
