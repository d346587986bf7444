#include <algorithm>

#include "src/pipeline/generators.hpp"

namespace lockstep {

namespace {

/// How far a stage of a zero-bubble schedule runs ahead.
struct SplitBackwardLead {
    int forwards = 0;  ///< before its first forward-backward pair
    /// The number of backward-inputs between a backward-input and its weight half.
    int inputs = 0;
};

/// One stage's work: first the `forwards` of the warm-up, then forwards and first halves
/// of backwards in turn. A backward's second half runs after `inputs` more first halves;
/// the last second halves are at the end.
// lesson: split-backward
std::vector<Instruction> split_backward_work(int micro_batches,
                                             const SplitBackwardLead& lead) {
    std::vector<Instruction> work;
    const int ahead = std::min(lead.forwards, micro_batches);
    for (int i = 0; i < ahead; ++i)
        work.push_back({InstructionKind::forward, i});
    for (int i = 0; i < micro_batches; ++i) {
        if (ahead + i < micro_batches)
            work.push_back({InstructionKind::forward, ahead + i});
        work.push_back({InstructionKind::backward_input, i});
        if (i >= lead.inputs)
            work.push_back({InstructionKind::backward_weight, i - lead.inputs});
    }
    const int first_left = std::max(micro_batches - lead.inputs, 0);
    for (int i = first_left; i < micro_batches; ++i)
        work.push_back({InstructionKind::backward_weight, i});
    return work;
}
// lesson: end

}  // namespace

Schedule zb_h1_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("zb-h1", shape);
    for (int stage = 0; stage < shape.stages; ++stage)
        schedule.work[stage] =
            split_backward_work(shape.micro_batches, {shape.stages - 1 - stage, stage});
    end_step(schedule);
    return schedule;
}

Schedule zb_h2_schedule(const PipelineShape& shape) {
    Schedule schedule = empty_schedule("zb-h2", shape);
    for (int stage = 0; stage < shape.stages; ++stage)
        schedule.work[stage] = split_backward_work(
            shape.micro_batches, {2 * (shape.stages - 1 - stage), 2 * stage});
    end_step(schedule);
    return schedule;
}

}  // namespace lockstep
