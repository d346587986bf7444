#include "src/pipeline/generators.hpp"
#include "src/pipeline/split_backward.hpp"

namespace lockstep {

// lesson: zb-h2-schedule
Schedule zb_h2_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("zb-h2", shape);
    for (int stage = 0; stage < shape.stages; ++stage)
        schedule.work[stage] = split_backward_work(
            shape.micro_batches,
            {2 * (shape.stages - 1 - stage), 2 * stage});
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
