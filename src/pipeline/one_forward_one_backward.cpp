#include <algorithm>

#include "src/pipeline/generators.hpp"

namespace lockstep {

// lesson: 1f1b-schedule
Schedule one_forward_one_backward_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("1f1b", shape);
    const int m = shape.micro_batches;
    for (int stage = 0; stage < shape.stages; ++stage) {
        auto& work = schedule.work[stage];
        // Warm-up: a forward for each stage behind this one.
        const int ahead = std::min(shape.stages - 1 - stage, m);
        for (int i = 0; i < ahead; ++i)
            work.push_back({InstructionKind::forward, i});
        // Steady state: one forward, one backward.
        for (int i = ahead; i < m; ++i) {
            work.push_back({InstructionKind::forward, i});
            work.push_back({InstructionKind::backward, i - ahead});
        }
        // Cool-down: the backwards of the warm-up's forwards.
        for (int i = m - ahead; i < m; ++i)
            work.push_back({InstructionKind::backward, i});
    }
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
