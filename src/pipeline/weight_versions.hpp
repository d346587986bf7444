#pragma once

#include <vector>

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// For each computation, the version of its chunk's weights that it reads. Versions count
/// the chunk's optimizer steps, from 0 at the schedule's start.
class WeightVersions {
  public:
    /// The schedule must outlive this object; its chunks must be in range.
    explicit WeightVersions(const Schedule& schedule);

    /// Returns how many optimizer steps of its chunk come before the instruction.
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

/// The versions of a chunk's weights that one micro-batch uses; -1 if it uses none.
struct WeightUse {
    int forward = -1;   ///< its forward reads this
    int backward = -1;  ///< its backward, or the first half, reads this
    int updated = -1;   ///< its gradients change this

    /// Returns how many steps late the gradients are: the version that they change minus
    /// the version that the forward read. It is 0 in a pipeline that flushes, and -1 if
    /// no step follows.
    int staleness() const { return updated < 0 ? -1 : updated - forward; }
    bool operator==(const WeightUse&) const = default;
};

/// Returns the versions that each micro-batch uses, by stage, chunk and micro-batch. The
/// schedule must be valid.
std::vector<std::vector<std::vector<WeightUse>>> weight_uses(const Schedule& schedule);

}  // namespace lockstep
