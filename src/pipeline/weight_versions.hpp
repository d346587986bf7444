#pragma once

#include "src/pipeline/schedule.hpp"

namespace lockstep {

/// Which version of its chunk's weights each computation reads: versions
/// are counted in optimizer steps of the chunk, from 0 at the schedule's
/// start.
class WeightVersions {
  public:
    /// The schedule must stay; its chunks must be in range.
    explicit WeightVersions(const Schedule& schedule);

    /// Optimizer steps of the instruction's chunk before it.
    int newest(Place place) const {
        return newest_[place.stage][place.position];
    }
    /// What it says, or the newest where it says nothing.
    int read(Place place) const {
        const int said = schedule_.at(place).weight_version;
        return said >= 0 ? said : newest(place);
    }

  private:
    const Schedule& schedule_;
    std::vector<std::vector<int>> newest_;
};

}  // namespace lockstep
