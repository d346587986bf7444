#pragma once

#include <optional>

#include "gpu/launcher/placement.hpp"

namespace lockstep::gpu {

/// The placement that one launcher gave, if it was the one; UsageError where its
/// variables make no sense.
std::optional<Placement> lockstep_placement(const Environment& environment);
std::optional<Placement> torchrun_placement(const Environment& environment);
std::optional<Placement> open_mpi_placement(const Environment& environment);
std::optional<Placement> pmi_placement(const Environment& environment);
std::optional<Placement> slurm_placement(const Environment& environment);

/// Whether srun started this process, alone or with others: it runs in a step of a Slurm
/// job that is not the job's own shell.
bool in_slurm_step(const Environment& environment);

}  // namespace lockstep::gpu
