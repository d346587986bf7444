#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// How far a stage of a zero-bubble schedule runs ahead.
struct SplitBackwardLead {
    int forwards = 0;  ///< before its first forward-backward pair
    /// Backward-inputs before the weight half of the first.
    int inputs = 0;
};

/// One stage's work: `forwards` of warm-up, then a forward and the first
/// half of a backward in turn; the second halves follow `inputs` behind,
/// and what is left of them at the end.
std::vector<Instruction> split_backward_work(int micro_batches,
                                             const SplitBackwardLead& lead);

}  // namespace lockstep
