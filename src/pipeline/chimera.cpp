#include <algorithm>

#include "src/pipeline/generators.hpp"
#include "src/pipeline/timetable.hpp"

namespace lockstep {

// lesson: chimera-schedule
Schedule chimera_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_two_ways("chimera", shape);
    Timetable timetable(schedule);
    const int p = shape.stages;
    // In a unit of p micro-batches, half go down and half go up. Each direction uses
    // every second slot of a stage; because p is even, they never use the same slot.
    for (int first = 0; first < shape.micro_batches; first += p) {
        const int count = std::min(p, shape.micro_batches - first);
        const int down = (count + 1) / 2;
        for (int i = 0; i < down; ++i)
            timetable.add_round_trip(first + i, 2 * (first + i), 0);
        for (int i = down; i < count; ++i)
            timetable.add_round_trip(first + i, 2 * (first + i - down), 1);
    }
    schedule.work = timetable.orders();
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
