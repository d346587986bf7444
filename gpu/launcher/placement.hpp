#pragma once

#include <functional>
#include <optional>
#include <string>

namespace lockstep::gpu {

/// The address at which rank 0 waits for the other processes: "host:port", or "unix:NAME"
/// for a socket of this machine without a file (Linux's abstract namespace).
struct Rendezvous {
    std::string address;
    std::string
        secret{};  ///< all processes of a run have the same; may be empty at unix:
};

/// A rendezvous address, split into its parts.
struct Address {
    std::string unix_name;  ///< of "unix:NAME"; empty for a host and port
    std::string host;  ///< a name, an IPv4 address, or an IPv6 address without brackets
    int port = 0;
    bool spread = false;  ///< processes of several machines meet there

    /// Returns the address in its written form: "unix:NAME", "host:port" or "[::1]:port".
    std::string text() const;
};

/// Reads "unix:NAME", "host:port" or "[ipv6]:port". Throws UsageError if the address is
/// wrong; the message begins with `variable`, the address's source.
Address parse_address(const std::string& text, const std::string& variable);

/// This process's place among the processes of a run, one per device.
struct Placement {
    int rank = 0;
    int size = 1;
    int local_rank = 0;  ///< among the processes of this machine: selects its GPU
    int local_size = 1;
    Rendezvous rendezvous;    ///< empty if the process is alone
    std::string launcher;     ///< "lockstep", "mpirun", "srun" or "torchrun"
    bool supervised = false;  ///< by supervise(), which reports a lost process
};

/// Returns the address at which this process's run meets. Throws UsageError if the
/// rendezvous is no address.
Address meeting_place(const Placement& placement);

/// Returns an environment variable's value; nothing if it is not set.
using Environment = std::function<std::optional<std::string>(const std::string& name)>;
Environment process_environment();

/// Reads the placement that the launcher put into the environment variables: our own
/// launcher, torchrun, mpirun (Open MPI's, and MPICH's PMI) or srun. Returns none if no
/// launcher did so, or in a shell that Slurm started (sbatch, salloc, `srun --pty`).
/// Throws UsageError with the name of a variable that is missing or makes no sense. An
/// empty variable counts as not set.
///
/// The processes meet at LOCKSTEP_RENDEZVOUS if that is set, or else at the port next to
/// NCCL_COMM_ID's. Otherwise, if all processes are on one machine, they meet at a socket
/// of that machine. Otherwise they meet at rank 0's address, which torchrun and srun
/// provide. mpirun does not: then UsageError says what to set.
///
/// The rendezvous has the secret that find_secret() finds.
std::optional<Placement> find_placement(const Environment& environment);

/// Returns the first machine of a Slurm list: "gpu01" for "gpu[01-04,07],login1". Throws
/// UsageError, beginning with `variable`, if the text is not such a list.
std::string first_host(const std::string& list, const std::string& variable);

/// Returns how many tasks run on machine number `node` (from 0), from a Slurm list of
/// counts: "4(x2),3" is 4, 4 and 3. Throws UsageError as above, and if the list has no
/// such machine.
int tasks_of_node(const std::string& list, int node, const std::string& variable);

/// Returns a number that depends on the whole text and is the same on every machine.
unsigned long long hash_text(const std::string& text);

}  // namespace lockstep::gpu
