#include "src/pipeline/generators.hpp"

namespace lockstep {

// lesson: gpipe-schedule
Schedule gpipe_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("gpipe", shape);
    for (auto& work : schedule.work) {
        for (int i = 0; i < shape.micro_batches; ++i)
            work.push_back({InstructionKind::forward, i});
        for (int i = 0; i < shape.micro_batches; ++i)
            work.push_back({InstructionKind::backward, i});
    }
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
