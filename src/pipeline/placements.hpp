#pragma once

#include <string>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// A schedule without work whose parts go to and fro over the stages: chunk c of stage s
/// is part c p + s if c is even, and part c p + p - 1 - s if it is odd, so that a
/// micro-batch turns round without a message. One chunk a stage is taken for two, which
/// make a V. Throws UsageError for an odd number of more.
Schedule empty_waves(const std::string& name, PipelineShape shape);

/// A schedule without work whose micro-batches enter at both ends: chunk 0 of stage s is
/// part s, on the way down, and chunk 1 is part p - 1 - s, on the way up. So two stages
/// hold each part. One chunk a stage is taken for the two. Throws UsageError if the
/// stages are odd in number.
Schedule empty_two_ways(const std::string& name, PipelineShape shape);

}  // namespace lockstep
