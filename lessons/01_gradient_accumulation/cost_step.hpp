#pragma once

#include <string>
#include <utility>
#include <vector>

#include "lessons/runner/lesson.hpp"
#include "src/cost/cluster_spec.hpp"

namespace lockstep::lessons {

/// "alpha 1 us, beta 10 GB/s"
std::string link_text(const LinkSpec& link);

/// Time, peak memory by category, and bytes sent of each run's busiest
/// rank.
Table cost_table(
    const std::vector<std::pair<std::string, const RunReport*>>& runs);

/// Asks for the bytes and the time of the all-reduces of a data-parallel
/// step, and holds the counted figures against the formulas.
void show_gradient_bytes(Page& page, const RunReport& report,
                         const LessonOptions& options);

}  // namespace lockstep::lessons
