#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep::test {

/// Returns whether a schedule can run. Follows the rules in src/pipeline/validate.hpp in
/// a slow way: counts instructions, and runs stages in turn until no stage can continue.
bool can_run(const Schedule& schedule);

}  // namespace lockstep::test
