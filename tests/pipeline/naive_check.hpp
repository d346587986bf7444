#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep::test {

/// Returns whether a schedule can run. Follows the rules in src/pipeline/validate.hpp in
/// a slow way: counts, and tries every stage in turn until nothing moves.
bool can_run(const Schedule& schedule);

}  // namespace lockstep::test
