#include <fstream>
#include <iterator>
#include <sys/types.h>
#include <unistd.h>

#include <fmt/format.h>

#include "gpu/launcher/placement_launchers.hpp"
#include "gpu/launcher/variables.hpp"

namespace lockstep::gpu {

namespace {

std::string file_text(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

pid_t parent_of(pid_t process) {
    // "pid (name) state parent …", where the name may hold anything.
    const std::string stat = file_text(fmt::format("/proc/{}/stat", process));
    const size_t name_end = stat.rfind(") ");
    return name_end == std::string::npos ? 0 : std::atoi(stat.c_str() + name_end + 4);
}

/// The process that gave this one its PMI_RANK, past wrappers that only inherited it:
/// Hydra leaves no other name for its job in the environment.
std::string hydra_job() {
    pid_t process = getppid();
    while (process > 1 &&
           file_text(fmt::format("/proc/{}/environ", process)).find("PMI_RANK=") !=
               std::string::npos)
        process = parent_of(process);
    return fmt::format("hydra {}", process);
}

}  // namespace

std::optional<Placement> open_mpi_placement(const Environment& environment) {
    const bool sized = environment("OMPI_COMM_WORLD_SIZE").has_value();
    if (!sized && !environment("OMPI_COMM_WORLD_RANK")) return std::nullopt;
    const Variables variables(environment, "mpirun",
                              sized ? "OMPI_COMM_WORLD_SIZE" : "OMPI_COMM_WORLD_RANK");
    Placement placement = read_placement(
        variables, {"OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE",
                    "OMPI_COMM_WORLD_LOCAL_RANK", "OMPI_COMM_WORLD_LOCAL_SIZE"});
    std::string job;
    for (const char* name :
         {"PMIX_NAMESPACE", "OMPI_MCA_ess_base_jobid", "OMPI_MCA_orte_hnp_uri"})
        job += environment(name).value_or("");
    placement.rendezvous = choose_rendezvous(variables, placement, job, "");
    return placement;
}

std::optional<Placement> pmi_placement(const Environment& environment) {
    const bool sized = environment("PMI_SIZE").has_value();
    if (!sized && !environment("PMI_RANK")) return std::nullopt;
    // srun sets these two as well (--mpi=pmi2), without the local ones.
    if (!environment("MPI_LOCALRANKID") && in_slurm_step(environment))
        return std::nullopt;
    const Variables variables(environment, "mpirun", sized ? "PMI_SIZE" : "PMI_RANK");
    Placement placement = read_placement(
        variables, {"PMI_RANK", "PMI_SIZE", "MPI_LOCALRANKID", "MPI_LOCALNRANKS"});
    const auto job = environment("PMI_JOBID");
    placement.rendezvous =
        choose_rendezvous(variables, placement, job ? "pmi " + *job : hydra_job(), "");
    return placement;
}

}  // namespace lockstep::gpu
