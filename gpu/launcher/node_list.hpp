#pragma once

#include <string>

namespace lockstep::gpu {

/// The first machine of a list as Slurm writes it: "gpu01" of "gpu[01-04,07],login1".
/// UsageError, beginning with `variable`, where the text is no such list.
std::string first_host(const std::string& list, const std::string& variable);

/// How many tasks run on machine number `node` (from 0) by a list of counts as Slurm
/// writes it: of "4(x2),3" that is 4, 4 and 3. UsageError as above, and where the list
/// has no such machine.
int tasks_of_node(const std::string& list, int node, const std::string& variable);

}  // namespace lockstep::gpu
