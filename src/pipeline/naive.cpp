#include "src/pipeline/generators.hpp"

namespace lockstep {

// lesson: naive-schedule
Schedule naive_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("naive", shape);
    for (auto& work : schedule.work)
        for (int i = 0; i < shape.micro_batches; ++i) {
            work.push_back({InstructionKind::forward, i});
            work.push_back({InstructionKind::backward, i});
        }
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
