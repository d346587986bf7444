#include "src/pipeline/generators.hpp"
#include "src/pipeline/split_backward.hpp"

namespace lockstep {

// lesson: zb-h1-schedule
Schedule zb_h1_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("zb-h1", shape);
    for (int stage = 0; stage < shape.stages; ++stage)
        schedule.work[stage] = split_backward_work(
            shape.micro_batches, {shape.stages - 1 - stage, stage});
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
