#include <charconv>

#include <fmt/format.h>

#include "gpu/launcher/address.hpp"
#include "gpu/launcher/node_list.hpp"
#include "gpu/launcher/placement_launchers.hpp"
#include "gpu/launcher/variables.hpp"

namespace lockstep::gpu {

namespace {

// Below those that Linux gives to outgoing connections.
constexpr int kFirstPort = 20000;
constexpr int kPorts = 12768;

/// The same in all processes of a step, and seldom that of another.
int step_port(const std::string& job, const std::string& step) {
    return kFirstPort + static_cast<int>(hash_text(job + "." + step) % kPorts);
}

}  // namespace

bool in_slurm_step(const Environment& environment) {
    // The shells of sbatch and of salloc have SLURM_PROCID=0 and the job's SLURM_NTASKS,
    // but no step, or one whose number lies above those of steps that run tasks.
    constexpr unsigned long long kLastStep = 0xfffffff0;
    const std::string text = environment("SLURM_STEP_ID").value_or("");
    unsigned long long step = 0;
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data(), end, step);
    return error == std::errc() && stop == end && step <= kLastStep;
}

std::optional<Placement> slurm_placement(const Environment& environment) {
    if (!in_slurm_step(environment) || !environment("SLURM_PROCID")) return std::nullopt;
    const Variables variables(environment, "srun", "SLURM_PROCID");
    Placement placement;
    placement.launcher = "srun";
    const char* size =
        variables.has("SLURM_STEP_NUM_TASKS") ? "SLURM_STEP_NUM_TASKS" : "SLURM_NTASKS";
    placement.size = variables.number(size, 1, 1 << 20);
    // `srun --pty bash` gives a shell, not a place: what runs in it may start copies.
    if (placement.size == 1) return std::nullopt;
    placement.rank = variables.number("SLURM_PROCID", 0, placement.size - 1);
    placement.local_size = tasks_of_node(variables.text("SLURM_STEP_TASKS_PER_NODE"),
                                         variables.number("SLURM_NODEID", 0, 1 << 20),
                                         "SLURM_STEP_TASKS_PER_NODE");
    placement.local_rank = variables.number("SLURM_LOCALID", 0, placement.local_size - 1);

    const std::string job = variables.text("SLURM_JOB_ID");
    const std::string step = variables.text("SLURM_STEP_ID");
    Address address;
    address.host =
        first_host(variables.text("SLURM_STEP_NODELIST"), "SLURM_STEP_NODELIST");
    address.port = step_port(job, step);
    placement.rendezvous = choose_rendezvous(
        variables, placement, fmt::format("srun {}.{}", job, step), address.text());
    return placement;
}

}  // namespace lockstep::gpu
