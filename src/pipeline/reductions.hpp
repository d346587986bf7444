#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// Throws UsageError where gradients of the stage that other devices share
/// would be reduced before their last contribution, twice, or not at all
/// before they are stepped with, or before the schedule's end. Where there
/// are no `updates`, optimizer steps do nothing and gradients go on adding
/// up.
void require_reductions(const Schedule& schedule, int stage, bool updates);

}  // namespace lockstep
