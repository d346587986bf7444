#pragma once

#include "lessons/runner/lesson.hpp"
#include "sim/cluster.hpp"
#include "src/core/require.hpp"

namespace lockstep::lessons {

/// What the options ask of the simulator. Throws UsageError with the option's name where
/// one cannot be, MissingError for a backend that is not there. Costs little, so the
/// runner asks before a lesson begins.
sim::ClusterOptions cluster_options(const LessonOptions& options, int ranks, bool trace);

}  // namespace lockstep::lessons
