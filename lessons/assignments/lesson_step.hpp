#pragma once

#include <string>

namespace lockstep::lessons {

/// Returns where a criterion is taught: "ring-self-attention, step 7" of the step whose
/// section has that name, "## How long a sequence fits {#memory}". Throws if there is
/// none.
std::string lesson_step(const std::string& lesson, const std::string& name);

}  // namespace lockstep::lessons
