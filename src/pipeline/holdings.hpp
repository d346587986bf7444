#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// The memory, in any unit, that a stage keeps for a chunk's micro-batch.
struct KeptMemory {
    /// From its forward to the first half of its backward.
    double activations = 1;
    double for_weights = 1;  ///< then, until the second half
};

/// A stage holds this after an instruction, or at most.
struct Holdings {
    int in_flight = 0;  ///< forward is done, the first half of backward not
    int between = 0;    ///< between the halves of backward
    /// Versions of a chunk's weights: the newest, and older ones in use.
    int weight_versions = 1;
    double memory = 0;

    void add(const Instruction& done, const KeptMemory& kept);
};

/// At most, by stage, micro-batches of different chunks counted apart. The
/// three come at different times; an instruction's own workspace is not
/// counted. The schedule must be valid.
std::vector<Holdings> peak_holdings(const Schedule& schedule,
                                    const KeptMemory& kept = {});

}  // namespace lockstep
