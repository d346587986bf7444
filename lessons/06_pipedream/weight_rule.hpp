#pragma once

#include <string>
#include <vector>

namespace lockstep::lessons {

/// The weights that a pass of one part reads.
struct WeightsRead {
    int version = 0;  ///< counted in updates of the part
    /// If it is not 0, they are an estimate of the version that lies so many updates
    /// ahead, or behind if it is negative: so many times the average of the steps up to
    /// `version` is added.
    int ahead = 0;

    bool operator==(const WeightsRead&) const = default;
};

/// The rule for weights of a pipeline of `stages` stages, as its paper writes it. The
/// lesson holds what the schedules do against these formulas.
struct WeightRule {
    std::string schedule;  ///< its name, as in make_schedule
    int stages = 1;
    int per_update = 1;  ///< micro-batches whose gradients an update sums up
    /// Updates by which each stage's gradients are late, if no schedule says it.
    std::vector<int> late{};

    /// Returns the weights that a micro-batch reads on a stage, both counted from 0.
    WeightsRead forward(int stage, int micro_batch) const;
    WeightsRead backward(int stage, int micro_batch) const;
    /// The version that is the newest when the micro-batch's backward runs, and that its
    /// gradient changes.
    int newest(int micro_batch) const { return micro_batch / per_update; }
};

}  // namespace lockstep::lessons
