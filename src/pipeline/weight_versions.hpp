#pragma once

#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// The version of its chunk's weights that each computation reads: versions are counted
/// in optimizer steps of the chunk, from 0 at the schedule's start.
class WeightVersions {
  public:
    /// The schedule must stay; its chunks must be in range.
    explicit WeightVersions(const Schedule& schedule);

    /// Optimizer steps of the instruction's chunk before it.
    int newest(Place place) const { return newest_[place.stage][place.position]; }
    /// Returns the version that the instruction names, or the newest if it names none.
    int read(Place place) const {
        const int said = schedule_.at(place).weight_version;
        return said >= 0 ? said : newest(place);
    }

  private:
    const Schedule& schedule_;
    std::vector<std::vector<int>> newest_;
};

/// The versions of a chunk's weights that one micro-batch meets there; -1 where it meets
/// none.
struct WeightUse {
    int forward = -1;   ///< its forward reads this
    int backward = -1;  ///< its backward, or the first half
    int updated = -1;   ///< its gradients change this

    /// Returns how many steps lie between the weights that the gradients are of and those
    /// that they change; 0 in a pipeline that flushes. -1 if no step follows.
    int staleness() const { return updated < 0 ? -1 : updated - forward; }
    bool operator==(const WeightUse&) const = default;
};

/// Returns the use of each micro-batch by each chunk of each stage. The schedule must be
/// valid.
std::vector<std::vector<std::vector<WeightUse>>> weight_uses(const Schedule& schedule);

}  // namespace lockstep
