#include "gpu/launcher/placement.hpp"

#include "gpu/launcher/placement_launchers.hpp"
#include "src/os/environment.hpp"

namespace lockstep::gpu {

Environment process_environment() {
    return &os::variable;
}

std::optional<Placement> find_placement(const Environment& environment) {
    const Environment set = [&](const std::string& name) {
        std::optional<std::string> value = environment(name);
        if (value && value->empty()) value.reset();
        return value;
    };
    // A launcher's processes inherit the variables of the launcher around it: copies of
    // ours may run in any shell, torchrun and mpirun reach other machines through srun,
    // and srun runs inside the job that others would see. So the innermost comes first.
    for (const auto find : {lockstep_placement, torchrun_placement, open_mpi_placement,
                            pmi_placement, slurm_placement})
        if (auto placement = find(set)) return placement;
    return std::nullopt;
}

}  // namespace lockstep::gpu
