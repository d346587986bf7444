#pragma once

#include "src/pipeline/validate.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep {

/// Follows the schedule until its end, or until nothing can run: then says
/// who waits for whom. All that instructions wait for must be somewhere.
std::optional<ScheduleProblem> find_deadlock(const Schedule& schedule,
                                             const WorkIndex& index);

}  // namespace lockstep
