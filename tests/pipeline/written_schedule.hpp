// Schedules written down by hand, a line a stage.
#pragma once

#include <string>
#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep::test {

/// The instructions of a line: "F0 F1 (SA1;RG0) B0 B1".
std::vector<Instruction> written_work(const std::string& line);

/// A schedule of the lines' instructions, chunks dealt out round and round.
Schedule written_schedule(const PipelineShape& shape,
                          const std::vector<std::string>& lines);

/// One line a stage, as they were written.
std::vector<std::string> lines_of(const Schedule& schedule);

/// Where an instruction stands on a stage. Throws where it is not there.
Place place_of(const Schedule& schedule, int stage, const std::string& text);

}  // namespace lockstep::test
