#pragma once

#include "lessons/runner/page.hpp"
#include "src/pipeline/schedule_json.hpp"

namespace lockstep::lessons {

/// Shows on a page what is known of a schedule's times, in the unit of `options`: its
/// bubble, a table of its stages, and its critical path.
void show_timing(Page& page, const Schedule& schedule, const Timing& timing,
                 const TimingJsonOptions& options);

}  // namespace lockstep::lessons
