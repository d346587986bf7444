#pragma once

#include <stdexcept>
#include <string>

#include "lessons/runner/lesson.hpp"
#include "sim/cluster.hpp"

namespace lockstep::lessons {

/// The machine or this build lacks what was asked for; ends the program with status 3.
class MissingError : public std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// What the options ask of the simulator. Throws UsageError with the option's name where
/// one cannot be, MissingError for a backend that is not there. Costs little, so the
/// runner asks before a lesson begins.
sim::ClusterOptions cluster_options(const LessonOptions& options, int ranks, bool trace);

}  // namespace lockstep::lessons
