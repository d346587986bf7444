#include "gpu/launcher/placement_launchers.hpp"
#include "gpu/launcher/variables.hpp"

namespace lockstep::gpu {

std::optional<Placement> lockstep_placement(const Environment& environment) {
    const bool sized = environment("LOCKSTEP_SIZE").has_value();
    if (!sized && !environment("LOCKSTEP_RANK")) return std::nullopt;
    const Variables variables(environment, "lockstep",
                              sized ? "LOCKSTEP_SIZE" : "LOCKSTEP_RANK");
    Placement placement = read_placement(
        variables,
        {"LOCKSTEP_RANK", "LOCKSTEP_SIZE", "LOCKSTEP_LOCAL_RANK", "LOCKSTEP_LOCAL_SIZE"});
    placement.supervised = variables.has("LOCKSTEP_SUPERVISED");
    placement.rendezvous = choose_rendezvous(variables, placement, "", "");
    return placement;
}

}  // namespace lockstep::gpu
