// Schedules written by hand, one line for each stage.
#pragma once

#include <string>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep::test {

/// Returns the instructions of a line such as "F0 F1 (SA1;RG0) B0 B1".
std::vector<Instruction> written_work(const std::string& line);

/// Returns a schedule of these lines' instructions, with chunks looped over the stages.
Schedule written_schedule(const PipelineShape& shape,
                          const std::vector<std::string>& lines);

/// Returns one line for each stage, in the form in which they were written.
std::vector<std::string> lines_of(const Schedule& schedule);

/// Returns an instruction's place on a stage. Throws if it is missing.
Place place_of(const Schedule& schedule, int stage, const std::string& text);

}  // namespace lockstep::test
