#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep::test {

/// Whether a schedule can run, found the slow way from the rules in
/// src/pipeline/validate.hpp: by counting, and by trying every stage in turn until
/// nothing moves.
bool can_run(const Schedule& schedule);

}  // namespace lockstep::test
