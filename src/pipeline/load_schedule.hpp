#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "src/pipeline/holdings.hpp"
#include "src/pipeline/schedule.hpp"
#include "src/pipeline/written_times.hpp"

namespace lockstep {

/// A schedule from a file, with its times and memory if the file gives them.
struct LoadedSchedule {
    Schedule schedule;
    std::optional<WrittenTimes> times;
    std::optional<ScheduleMemory> memory;
};

/// Reads a schedule from a file of at most 64 MiB, in one of two forms. Both list each
/// stage's instructions in order; src/pipeline/schedule.hpp describes their text. Sizes
/// that the file leaves out follow from the instructions.
///
/// JSON, if the file's name does not end in ".csv": one object with these keys:
///
///     {"name": "mine", "micro_batches": 2, "chunks": 1,
///      "schedule": [["F0", "F1", "B0", "B1"],
///                   ["F0", "B0", "F1", "B1"]],
///      "parts": [[0], [1]]}
///
/// "queues" is "one" (the default) or "by direction" (MessageQueues). "stages" may be
/// given, too; it must be the number of lists. "parts" says which part of the model each
/// chunk of each stage is; without it, chunk c of stage s is part c * stages + s. Without
/// "name" the schedule has the file's name. Other keys that timing_json() writes are
/// ignored; any other key is an error. Two objects give the times and the memory of the
/// parts of the model. Each amount is one number for all parts, or a list with one number
/// for each part. An amount that is left out has the default of Durations or KeptMemory:
///
///     "times": {"forward": [1, 1, 1.5], "backward": 2, "message": [0.1, 0.4, 0],
///               "links": {"1-2": 0.4}},
///     "memory": {"activations": [2, 1, 1], "weights": 4}
///
/// "backward" gives two equal halves. If "message" is a list, each number is for messages
/// to and from the next part.
///
/// In each stage's list, "[" and "]xN" enclose a middle that the schedule repeats N
/// times. Each copy has later micro-batches (later by the number of forwards in the
/// middle) and later versions of weights. The instructions after the middle are written
/// as if the middle ran once.
///
/// CSV (src/report/csv_cells.hpp): a line for each stage, a cell for each instruction.
/// Empty cells are idle time and are ignored, as are empty lines and lines that begin
/// with #. A line "parts,0 3,1 2" gives "parts", a cell for each stage; "queues,by
/// direction" gives "queues". If the first cell is an action of PyTorch, all cells are
/// (src/pipeline/pytorch_schedule.hpp).
///
/// Both forms may begin with a byte order mark, and end lines in LF or CRLF. Each
/// instruction keeps its line in the file, so that errors can name the line. Throws
/// UsageError with file and line for text that is not valid, std::system_error for a file
/// that cannot be read. It does not check whether the schedule can run;
/// src/pipeline/validate.hpp does.
LoadedSchedule load_schedule(const std::filesystem::path& file);

/// Read a schedule from text, in JSON or CSV; errors name the file as `name`.
LoadedSchedule read_schedule_json(const std::string& text, const std::string& name);
Schedule read_schedule_csv(const std::string& text, const std::string& name);

}  // namespace lockstep
