#include <fmt/format.h>

#include "gpu/launcher/address.hpp"
#include "gpu/launcher/placement_launchers.hpp"
#include "gpu/launcher/variables.hpp"

namespace lockstep::gpu {

std::optional<Placement> torchrun_placement(const Environment& environment) {
    const bool sized = environment("WORLD_SIZE").has_value();
    if (!sized && !environment("RANK")) return std::nullopt;
    const Variables variables(environment, "torchrun", sized ? "WORLD_SIZE" : "RANK");
    Placement placement = read_placement(
        variables, {"RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE"});

    // torchrun's agent may be listening on MASTER_PORT itself.
    Address address;
    address.host = variables.text("MASTER_ADDR");
    address.port = port_beside(variables.number("MASTER_PORT", 1, 65535));
    const std::string job =
        fmt::format("torchrun {} {} {}", address.text(),
                    environment("TORCHELASTIC_RUN_ID").value_or(""),
                    environment("TORCHELASTIC_RESTART_COUNT").value_or(""));
    placement.rendezvous = choose_rendezvous(variables, placement, job, address.text());
    return placement;
}

}  // namespace lockstep::gpu
