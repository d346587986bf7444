#include <algorithm>

#include "src/core/require.hpp"
#include "src/pipeline/generators.hpp"

namespace lockstep {

namespace {

/// The k-th forward, or backward, of every stage: p micro-batches go
/// through chunk after chunk, then the next p.
Instruction turn(InstructionKind kind, int k, const PipelineShape& shape) {
    const int p = shape.stages;
    const int round = p * shape.chunks;
    const int chunk = k % round / p;
    return {kind, k / round * p + k % p,
            kind == InstructionKind::forward ? chunk : shape.chunks - 1 - chunk};
}

}  // namespace

// lesson: interleaved-schedule
Schedule interleaved_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("interleaved", shape);
    const int p = shape.stages;
    require(shape.micro_batches % p == 0,
            "interleaved takes the micro-batches in rounds of {}, one for "
            "each stage; {} of them are no multiple of that",
            p, shape.micro_batches);
    const int turns = shape.micro_batches * shape.chunks;
    for (int stage = 0; stage < p; ++stage) {
        auto& work = schedule.work[stage];
        const auto add = [&](InstructionKind kind, int k) {
            work.push_back(turn(kind, k, shape));
        };
        // Warm-up: until the first backward has come back to this stage.
        const int ahead = std::min(2 * (p - 1 - stage) + (shape.chunks - 1) * p, turns);
        for (int k = 0; k < ahead; ++k)
            add(InstructionKind::forward, k);
        for (int k = ahead; k < turns; ++k) {
            add(InstructionKind::forward, k);
            add(InstructionKind::backward, k - ahead);
        }
        for (int k = turns - ahead; k < turns; ++k)
            add(InstructionKind::backward, k);
    }
    end_step(schedule);
    return schedule;
}
// lesson: end

}  // namespace lockstep
