#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep::test {

/// Returns whether a schedule can run. It follows the rules in src/pipeline/validate.hpp
/// the slow way: by counting, and by trying every stage in turn until nothing moves.
bool can_run(const Schedule& schedule);

}  // namespace lockstep::test
