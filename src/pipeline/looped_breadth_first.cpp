#include "src/pipeline/generators.hpp"

namespace lockstep {

// lesson: looped-breadth-first-schedule
Schedule looped_breadth_first_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("looped-bfs", shape);
    for (auto& work : schedule.work) {
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
            for (int i = 0; i < shape.micro_batches; ++i)
                work.push_back({InstructionKind::forward, i, chunk});
        for (int chunk = shape.chunks; chunk-- > 0;) {
            for (int i = 0; i < shape.micro_batches; ++i)
                work.push_back({InstructionKind::backward, i, chunk});
            // The chunk's gradients are complete, so their reduction need not wait.
            work.push_back({InstructionKind::reduce_gradients, -1, chunk});
        }
        for (int chunk = 0; chunk < shape.chunks; ++chunk)
            work.push_back({InstructionKind::optimizer_step, -1, chunk});
    }
    return schedule;
}
// lesson: end

}  // namespace lockstep
