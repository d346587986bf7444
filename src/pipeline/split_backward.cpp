#include "src/pipeline/split_backward.hpp"

#include <algorithm>

namespace lockstep {

// lesson: split-backward
std::vector<Instruction> split_backward_work(
    int micro_batches, const SplitBackwardLead& lead) {
    std::vector<Instruction> work;
    const int ahead = std::min(lead.forwards, micro_batches);
    for (int i = 0; i < ahead; ++i)
        work.push_back({InstructionKind::forward, i});
    for (int i = 0; i < micro_batches; ++i) {
        if (ahead + i < micro_batches)
            work.push_back({InstructionKind::forward, ahead + i});
        work.push_back({InstructionKind::backward_input, i});
        if (i >= lead.inputs)
            work.push_back(
                {InstructionKind::backward_weight, i - lead.inputs});
    }
    const int first_left = std::max(micro_batches - lead.inputs, 0);
    for (int i = first_left; i < micro_batches; ++i)
        work.push_back({InstructionKind::backward_weight, i});
    return work;
}
// lesson: end

}  // namespace lockstep
