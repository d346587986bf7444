#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// What a stage keeps for one micro-batch of one chunk, in any unit.
struct KeptMemory {
    double activations =
        1;  ///< from its forward to its backward's first half
    double for_weights = 1;  ///< then, until its second half
};

/// What a stage holds after an instruction, or at most.
struct Holdings {
    int in_flight = 0;  ///< forward is done, the first half of backward not
    int between = 0;    ///< between the halves of backward
    int weight_versions =
        1;  ///< of a chunk: the newest, and older ones in use
    double memory = 0;

    void add(const Instruction& done, const KeptMemory& kept);
};

/// At most, by stage, micro-batches of different chunks counted apart. The
/// three come at different times; an instruction's own workspace is not
/// counted. The schedule must be valid.
std::vector<Holdings> peak_holdings(const Schedule& schedule,
                                    const KeptMemory& kept = {});

}  // namespace lockstep
