#pragma once

#include <functional>
#include <string>

#include "src/core/require.hpp"
#include "src/course/task.hpp"
#include "src/pipeline/schedule_json.hpp"
#include "src/pipeline/validate.hpp"

namespace lockstep {

/// Returns a schedule as JSON, under another name: its own may be any text. Throws
/// UsageError if a number is impossible.
inline std::string text_of_schedule(Schedule schedule) {
    schedule.name = "left";
    const auto problem = find_bad_number(schedule);
    require(!problem, [&] { return problem->sentence; });
    return schedule_json(schedule);
}

/// Returns a task that outputs a schedule twice, as text. left_schedule.hpp reads it.
inline Task leaves_schedule(std::function<Schedule(const TaskInputs& in)> make) {
    return
        [make = std::move(make)](Rank& /*rank*/, const TaskInputs& in, TaskOutputs& out) {
            out.texts["schedule"] = text_of_schedule(make(in));
            out.texts["again"] = text_of_schedule(make(in));
        };
}

}  // namespace lockstep
