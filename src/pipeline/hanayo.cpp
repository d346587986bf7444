#include "src/pipeline/generators.hpp"
#include "src/pipeline/timetable.hpp"

namespace lockstep {

// lesson: hanayo-schedule
Schedule hanayo_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_waves("hanayo", shape);
    Timetable timetable(schedule);
    // Micro-batches begin in every second slot; micro-batches on their way back use the
    // slots between. A unit of p begins when the first of the unit before ends.
    for (int i = 0; i < shape.micro_batches; ++i) {
        const int unit = i / shape.stages;
        const int turn = i % shape.stages;
        timetable.add_round_trip(i, 2 * schedule.part_count() * unit + 2 * turn);
    }
    schedule.work = timetable.orders();
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
