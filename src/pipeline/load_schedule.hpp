#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/schedule.hpp"
#include "src/pipeline/written_times.hpp"

namespace lockstep {

/// A schedule from a file, and how long things take and what they keep, if it says so.
struct LoadedSchedule {
    Schedule schedule;
    std::optional<WrittenTimes> times;
    std::optional<ScheduleMemory> memory;
};

/// Reads a schedule from a file of at most 64 MiB, in one of two forms. Both give for
/// each stage its instructions in order, as src/pipeline/schedule.hpp writes them. Sizes
/// that the file leaves out follow from the instructions.
///
/// JSON, if the name does not end in ".csv"; the keys of one object:
///
///     {"name": "mine", "micro_batches": 2, "chunks": 1,
///      "schedule": [["F0", "F1", "B0", "B1"],
///                   ["F0", "B0", "F1", "B1"]],
///      "parts": [[0], [1]]}
///
/// "queues" is "one", as without it, or "by direction" (MessageQueues). "stages", too,
/// may be there, and must be the number of lists. "parts" says which part of the model
/// each chunk of each stage is; without it, chunk c of stage s is part c * stages + s.
/// Without "name" it is called as its file is. What timing_json() writes beside these is
/// passed over; any other key is an error. Times and memory of the parts of the model
/// stand in two objects, each amount one number for all parts or a list with one a part;
/// what is left out is as Durations and KeptMemory have it:
///
///     "times": {"forward": [1, 1, 1.5], "backward": 2, "message": [0.1, 0.4, 0],
///               "links": {"1-2": 0.4}},
///     "memory": {"activations": [2, 1, 1], "weights": 4}
///
/// "backward" stands for two equal halves; "message" by part is that to and from the
/// next.
///
/// A middle that repeats stands between "[" and "]xN" in each stage's list: once, but N
/// times in the schedule, each with as many later micro-batches as it has forwards, and
/// later versions of weights. What stands behind it is written as if it stood there once.
///
/// CSV (src/report/csv_cells.hpp): a line a stage, a cell an instruction; empty cells are
/// idle time and mean nothing; lines that are empty or begin with # are passed over. A
/// line "parts,0 3,1 2" says what "parts" says in JSON, a cell for each stage, and
/// "queues,by direction" what "queues" does. If its first cell is one of PyTorch's, all
/// are: src/pipeline/pytorch_schedule.hpp.
///
/// Both may begin with a byte order mark, and end lines in LF or CRLF. Instructions keep
/// the line of the file that they are on, so that messages can name it. Throws UsageError
/// with file and line for text that cannot be read, std::system_error for a file that
/// cannot. Whether it can run is another matter: src/pipeline/validate.hpp.
LoadedSchedule load_schedule(const std::filesystem::path& file);

/// Read a schedule from text, in JSON or CSV; `name` stands for the file in messages.
LoadedSchedule read_schedule_json(const std::string& text, const std::string& name);
Schedule read_schedule_csv(const std::string& text, const std::string& name);

}  // namespace lockstep
