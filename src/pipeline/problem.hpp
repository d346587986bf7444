#pragma once

#include <optional>
#include <string>

#include "src/pipeline/validate.hpp"
#include "src/pipeline/work_index.hpp"

namespace lockstep {

// What the parts of the validator share. A problem is none where there is
// none.

using Problem = std::optional<ScheduleProblem>;

/// "FILE:LINE: stage 2, instruction 5 of 16, …: WHAT".
ScheduleProblem problem_at(const Schedule& schedule, Place place,
                           const std::string& what);
/// Of the whole, without a place: "FILE: WHAT".
ScheduleProblem problem_of(const Schedule& schedule,
                           const std::string& what);

/// Of what each part of the model has to do with each micro-batch: forward
/// once and backward once, whole or in halves, in one chunk, in this order.
Problem check_passes(const Schedule& schedule, const WorkIndex& index);

}  // namespace lockstep
